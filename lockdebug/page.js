'use strict';
// Refreshes the page: it gets the same address again and changes what differs, so that a selection and the place on the
// page stay. The server makes all of the text, so there is one place where values are escaped.
(() => {
  const most = 60000, pause = 1000;
  const main = document.querySelector('main');
  const status = document.getElementById('status');
  const search = document.getElementById('q');
  let timer = 0, round = 0, shown = status.textContent;

  function address() {
    const query = new URLSearchParams();
    if (search.value) query.set('q', search.value);
    return location.pathname + (query.size ? '?' + query : '');
  }

  function show(text, stale) {
    status.textContent = text;
    status.classList.toggle('stale', stale);
  }

  // adapt makes a node of the page equal to a new one of the same name.
  function adapt(node, next) {
    if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.nodeValue !== next.nodeValue) node.nodeValue = next.nodeValue;
      return;
    }
    for (const { name } of [...node.attributes]) if (!next.hasAttribute(name)) node.removeAttribute(name);
    for (const { name, value } of next.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    const old = [...node.childNodes], wanted = [...next.childNodes];
    wanted.forEach((child, i) => {
      if (!old[i]) node.append(child);
      else if (old[i].nodeName !== child.nodeName) old[i].replaceWith(child);
      else adapt(old[i], child);
    });
    old.slice(wanted.length).forEach((child) => child.remove());
  }

  async function refresh() {
    clearTimeout(timer);
    const mine = ++round, began = performance.now();
    try {
      const answer = await fetch(address(), { cache: 'no-store', signal: AbortSignal.timeout(most) });
      const text = await answer.text();
      const next = new DOMParser().parseFromString(text, 'text/html');
      // A page beside an error status says itself what is not known.
      if (!next.querySelector('main')) throw new Error(text.trim().slice(0, 200) || answer.status);
      if (mine !== round) return;
      adapt(main, next.querySelector('main'));
      shown = next.getElementById('status').textContent;
      show(shown, false);
    } catch (error) {
      if (mine !== round) return;
      show('not refreshed: ' + error.message + '; ' + shown, true);
    }
    // A server that needs long for an answer is asked less often, and a page that is not seen does not ask.
    if (!document.hidden) timer = setTimeout(refresh, Math.max(pause, 10 * (performance.now() - began)));
  }

  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => { history.replaceState(null, '', address()); refresh(); }, 200);
  });
  timer = setTimeout(refresh, pause);
})();

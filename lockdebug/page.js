'use strict';
// Refreshes the page: it gets the same address again and changes what differs, so that a selection and the place on the
// page stay. The server makes all of the text, so there is one place where values are escaped.
(() => {
  const most = 60000, pause = 1000;
  const main = document.querySelector('main');
  const status = document.getElementById('status');
  const counts = document.getElementById('counts');
  const form = document.querySelector('form');
  let timer = 0, asking = new AbortController(), shown = status.textContent;

  function address() {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) query.set(name, value);
    return location.pathname + (query.size ? '?' + query : '');
  }

  function show(text, stale) {
    status.textContent = text;
    status.classList.toggle('stale', stale);
  }

  // key says what an element is about: a row is about a hold, and a group of rows about a lock.
  const key = (node) => node.id || node.dataset?.key;

  // adapt makes a node of the page equal to a new one of the same name. A child stays what it is about: what has the
  // focus, such as a link to break a hold, never becomes another hold's.
  function adapt(node, next) {
    if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.nodeValue !== next.nodeValue) node.nodeValue = next.nodeValue;
      return;
    }
    for (const { name } of [...node.attributes]) if (!next.hasAttribute(name)) node.removeAttribute(name);
    for (const { name, value } of next.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    const wanted = [...next.childNodes], old = new Map();
    for (const child of node.childNodes) {
      const which = child.nodeName + ' ' + (key(child) || '');
      old.set(which, [...(old.get(which) || []), child]);
    }
    const kept = wanted.map((child) => old.get(child.nodeName + ' ' + (key(child) || ''))?.shift());
    for (const gone of [...old.values()].flat()) gone.remove();
    wanted.forEach((child, i) => {
      const at = node.childNodes[i] || null;
      if (at !== (kept[i] || child)) node.insertBefore(kept[i] || child, at);
      if (kept[i]) adapt(kept[i], child);
    });
  }

  async function refresh() {
    clearTimeout(timer);
    asking.abort(); // a server that lists many locks does not go on with what nobody wants any more
    const mine = asking = new AbortController(), began = performance.now();
    const limit = setTimeout(() => mine.abort(new Error('no answer')), most);
    const slow = setTimeout(() => { // so that a search does not look done
      if (!status.classList.contains('stale')) show('asking; ' + shown, false);
    }, 2 * pause);
    try {
      const answer = await fetch(address(), { cache: 'no-store', signal: mine.signal });
      const text = await answer.text();
      const next = new DOMParser().parseFromString(text, 'text/html'), focus = document.activeElement;
      // A page beside an error status says itself what is not known.
      if (!next.querySelector('main')) throw new Error(text.trim().slice(0, 200) || answer.status);
      if (mine !== asking) return;
      adapt(main, next.querySelector('main'));
      adapt(counts, next.getElementById('counts'));
      if (focus?.isConnected) focus.focus({ preventScroll: true }); // a row that was moved has lost it
      shown = next.getElementById('status').textContent;
      show(shown, false);
    } catch (error) {
      if (mine !== asking) return;
      show('not refreshed: ' + error.message + '; ' + shown, true);
    } finally {
      clearTimeout(limit);
      clearTimeout(slow);
    }
    // A server that needs long for an answer is asked less often, and a page that is not seen does not ask.
    if (!document.hidden) timer = setTimeout(refresh, Math.max(pause, 10 * (performance.now() - began)));
  }

  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
  form.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => { history.replaceState(null, '', address()); refresh(); }, 200);
  });
  timer = setTimeout(refresh, pause);
})();

//go:build unix

package lockdebug_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lockdebug"
	"github.com/seed74116694/fencelock/rwlock"
)

// hostile is a meta that would take the page over, were it no text.
const hostile = `<script>document.title="taken"</script><img src=x onerror="document.title='taken'">`

// rowsWith is an expression: the rows that have this text, or whose lock has it. which is a selector.
func rowsWith(which, text string) string {
	return "[...document.querySelectorAll('" + which + "')].filter((row) => " +
		"[row, row.parentNode.querySelector('.lock')].some((part) => part?.textContent.includes('" + text + "')))"
}

// The rows of holders, waiters and losses.
const (
	holds  = "#locks .holds"
	waits  = "#locks .waits"
	losses = "#losses tbody tr"
)

// A real browser shows what comes and goes without a reload: a waiter, its hand-off, a loss.
func TestPageInABrowser(t *testing.T) {
	testredis.NeedAll(t, "a browser")
	b := startBrowser(t)
	redis := miniredis.RunT(t)
	p := testkit.Dial(t, redis.Addr(), rueidis.ClientOption{}, rwlock.WithMeta("web-1:4711"))
	q := testkit.Dial(t, redis.Addr(), rueidis.ClientOption{}, rwlock.WithMeta("batch-2:815"))
	ctx := t.Context()
	take := func(l *rwlock.Locker, name string, opts ...rwlock.LockOption) *rwlock.Lease {
		return expect.NoError(l.Lock(ctx, name, opts...)).In(t)
	}
	take(p, "orders:"+strings.Repeat("long-", 40), rwlock.WithMeta(hostile))
	wanted := take(q, "report:2026")
	server := httptest.NewServer(lockdebug.Handler(p))
	t.Cleanup(server.Close)
	b.screen(1280, 800, "light")
	b.open(server.URL + "/")
	b.evaluate("window.stays = 'here'")

	// Text stays text.
	b.until("document.querySelector('#locks td[data-label=Holder]')")
	require.Equal(t, hostile, b.evaluate("document.querySelector('#locks td[data-label=Holder]').textContent"))
	require.Equal(t, 0.0, b.evaluate("document.querySelectorAll('main script, main img').length"))

	// A waiter arrives, gets the lock by a hand-off, and loses it.
	granted := make(chan *rwlock.Lease)
	go func() {
		lease, err := p.Lock(ctx, "report:2026", rwlock.WithMaxHold(700*time.Millisecond))
		if err != nil {
			lease = nil
		}
		granted <- lease
	}()
	b.until(rowsWith(waits, "report:2026") + ".length === 1")
	require.Contains(t, b.evaluate(rowsWith(waits, "report:2026")+"[0].textContent"), "batch-2:815 for write")
	mu := p.RWMutex("catalogue", rwlock.WithMeta(`<b>"café" & <i>co</i></b>`))
	require.NoError(t, mu.RLock(ctx))
	go func() { _ = mu.Lock(ctx) }()
	b.until(rowsWith(waits, "inside this process") + ".length === 1")
	look(b)
	require.NoError(t, wanted.Release(ctx))
	lease := <-granted
	require.NotNil(t, lease)
	<-lease.Done()
	b.until(rowsWith(losses, "max hold") + ".length === 1 && " + rowsWith(waits, "report") + ".length === 0")
	second := take(p, "report:2026")
	b.until(rowsWith(holds, second.Token().String()) + ".length === 1")

	search(b)
	require.Equal(t, "here", b.evaluate("window.stays"), "without a reload")
	require.NotContains(t, b.evaluate("document.title"), "taken")
	require.Empty(t, b.takeProblems())
	policyHolds(b, server.URL)
	operate(b)
	b.open(server.URL + "/")

	// A process that has ended is not shown as if it ran on.
	server.CloseClientConnections()
	server.Close()
	b.until("document.querySelector('#status.stale')?.textContent.startsWith('not refreshed: ')")
	b.until(rowsWith(holds, second.Token().String()) + ".length === 1")
}

// look looks at the page on screens of all kinds. It must not be wider than the screen.
func look(b *browser) {
	b.Helper()
	for _, s := range []struct {
		name          string
		width, height int
		scheme        string
	}{
		{"light", 1280, 900, "light"},
		{"dark", 1280, 900, "dark"},
		{"desk", 1440, 900, "light"},
		{"phone", 360, 1400, "light"},
		{"phone-dark", 360, 1400, "dark"},
		{"tablet", 768, 1000, "light"},
		{"laptop", 1040, 800, "light"},
	} {
		b.screen(s.width, s.height, s.scheme)
		b.until(fmt.Sprintf("innerWidth === %d", s.width))
		require.LessOrEqual(b, b.evaluate("document.documentElement.scrollWidth"), float64(s.width), s.name)
		dark := b.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 24)"
		require.Equal(b, s.scheme == "dark", dark, s.name)
		status := b.evaluate("getComputedStyle(document.getElementById('status')).backgroundColor")
		require.Equal(b, "rgba(0, 0, 0, 0)", status, "no alarm without a cause")
	}
	b.screen(1280, 800, "light")
}

// search types a text, which leaves the rows that have it. The address then finds them again.
func search(b *browser) {
	b.Helper()
	b.evaluate("document.getElementById('q').focus()")
	b.call("Input.insertText", object{"text": "REPORT"}, nil)
	b.until("location.search === '?q=REPORT' && " + rowsWith(holds, "orders") + ".length === 0")
	require.Equal(b, 1.0, b.evaluate(rowsWith(holds, "report:2026")+".length"))
	require.Equal(b, "q", b.evaluate("document.activeElement.id"), "the field keeps its focus")
	b.evaluate("document.getElementById('q').value = ''; " +
		"document.getElementById('q').dispatchEvent(new Event('input', {bubbles: true})); null")
	b.until("location.search === '' && " + rowsWith(holds, "orders") + ".length === 1")
}

// policyHolds has the page try what it must not do.
func policyHolds(b *browser, origin string) {
	b.Helper()
	b.evaluate(`window.refused = [];
		document.addEventListener('securitypolicyviolation', (e) => refused.push(e.effectiveDirective));
		const add = (tag, change) => {
			const e = document.createElement(tag); change(e); document.querySelector('header').append(e);
		};
		add('script', (e) => { e.textContent = 'document.title = "taken"'; });
		add('style', (e) => { e.textContent = 'main { display: none }'; });
		add('img', (e) => { e.src = '/x.png'; });
		add('p', (e) => { e.setAttribute('onclick', 'document.title = "taken"'); e.click(); });
		add('iframe', (e) => { e.src = location.href; });
		null`)
	b.until("['script-src-elem', 'style-src-elem', 'img-src', 'script-src-attr', 'frame-src']" +
		".every((d) => refused.includes(d))")
	require.NotContains(b, b.evaluate("document.title"), "taken")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	require.Equal(b, "refused", b.evaluate("fetch('"+other.URL+"').then(() => 'sent', () => 'refused')"))
	require.Equal(b, 200.0, b.evaluate("fetch('"+origin+"?format=json').then((a) => a.status)"))
	b.takeProblems()
}

// Without scripts the form and the links still work.
func TestPageInABrowserWithoutScripts(t *testing.T) {
	testredis.NeedAll(t, "a browser")
	b := startBrowser(t)
	locker := testkit.Dial(t, miniredis.RunT(t).Addr(), rueidis.ClientOption{})
	server := httptest.NewServer(lockdebug.Handler(locker))
	t.Cleanup(server.Close)
	b.call("Emulation.setScriptExecutionDisabled", object{"value": true}, nil)
	b.open(server.URL + "/?q=one&sort=held")
	require.Equal(t, "one held", b.evaluate("q.value + ' ' + document.querySelector('select').value"))
	b.evaluate(`q.value = 'two'; document.querySelector('[name=prefix]').value = 'a&b';
		document.querySelector('select').value = 'waiting'; document.querySelector('[name=waiting]').click(); null`)
	_, _ = b.tryEvaluate("document.querySelector('form').requestSubmit(); null") // it leaves the page
	const sent = "location.search === '?q=two&prefix=a%26b&sort=waiting&waiting=1' && document.readyState === 'complete'"
	b.until(sent)
	require.Equal(t, "two a&b waiting true", b.evaluate(`[...document.querySelector('form').elements].map((e) =>
		e.type === 'checkbox' ? e.checked : e.value).filter((value) => value !== '').join(' ')`))
	_, _ = b.tryEvaluate("document.querySelector('nav a').click(); null")
	b.until("location.search === '?prefix=a%26b&q=two&sort=waiting' && document.readyState === 'complete'")
	require.Empty(t, b.takeProblems())
}

// The few locks that have waiters are on the first screen, however many locks there are.
func TestWaitersAreOnTheFirstScreen(t *testing.T) {
	testredis.NeedAll(t, "a browser")
	b := startBrowser(t)
	redis := miniredis.RunT(t)
	p := testkit.Dial(t, redis.Addr(), rueidis.ClientOption{}, rwlock.WithTTL(time.Hour))
	for i := range 600 {
		expect.NoError(p.Lock(t.Context(), fmt.Sprintf("orders:%03d", i))).In(t)
	}
	for range 7 {
		go func() { _, _ = p.Lock(t.Context(), "orders:599") }()
	}
	server := httptest.NewServer(lockdebug.Handler(p))
	t.Cleanup(server.Close)
	for _, width := range []int{1440, 820, 390} {
		b.screen(width, 844, "light")
		b.open(server.URL + "/")
		b.until("document.querySelector('#locks .lock').innerText.includes('1 holder, 7 waiting')")
		b.until("document.querySelector('nav').innerText.includes('7 waiting')")
		require.Equal(b, true, b.evaluate("["+`...document.querySelectorAll('#locks .waits:not(.more)')].length === 5 &&
			document.querySelector('#locks .waits').getBoundingClientRect().bottom < innerHeight`), width)
		require.LessOrEqual(b, b.evaluate("document.documentElement.scrollWidth"), float64(width))
	}

	// The box opens the rest, and a refresh leaves it open. The order and the filter are asked for without a reload.
	const open = "[...document.querySelectorAll('#locks .waits')].filter((row) => row.checkVisibility()).length === "
	b.until(open + "5")
	b.evaluate("window.stays = 'here'; window.was = document.getElementById('status').textContent; " +
		"document.querySelector('.lock input').click(); null")
	b.until("document.getElementById('status').textContent !== was && " + open + "7")
	b.evaluate("document.querySelector('select').value = 'name'; " +
		"document.querySelector('select').dispatchEvent(new Event('input', {bubbles: true})); null")
	b.until("location.search === '?sort=name' && document.querySelector('#locks bdi').textContent === 'orders:000'")
	b.evaluate("document.querySelector('form [type=checkbox]').click()")
	b.until("location.search === '?sort=name&waiting=1' && document.querySelectorAll('#locks tbody').length === 1")
	require.Equal(t, "here", b.evaluate("window.stays"))
	require.Empty(t, b.takeProblems())
}

const focus = "document.activeElement.getAttribute('aria-label')"

// A refresh changes the rows around the one that has the focus, and ENTER still breaks the hold that it broke before.
func TestFocusStaysWithItsHold(t *testing.T) {
	testredis.NeedAll(t, "a browser")
	b := startBrowser(t)
	o := startOperated(t)
	above, wanted, below := o.take("1 above"), o.take("2 wanted"), o.take("3 below")
	b.screen(1280, 800, "light")
	b.open(o.url + "/")
	b.until("document.querySelectorAll('#locks .holds').length === 3")
	mine := fmt.Sprintf("break hold %s of 2 wanted", wanted.Owner())
	b.evaluate(fmt.Sprintf("document.querySelector('[aria-label=\"%s\"]').focus(); "+
		"document.getElementById('locks').stays = true; null", mine))

	require.NoError(t, above.Release(t.Context()))
	b.until("document.querySelectorAll('#locks .holds').length === 2")
	require.Equal(t, mine, b.evaluate(focus), "a row above has gone")
	b.evaluate(`document.querySelector('#locks table').prepend(document.querySelector('#locks tbody:last-child'));
		document.querySelector('main').insertAdjacentHTML('afterbegin', '<p class="error">no answer</p>'); null`)
	b.until("!document.querySelector('.error') && " +
		"document.querySelector('#locks tbody').textContent.includes('wanted')")
	require.Equal(t, mine, b.evaluate(focus), "the rows were in another order, and an error went away")
	again := o.take("1 above")
	b.until("document.querySelectorAll('#locks .holds').length === 3")
	require.Equal(t, mine, b.evaluate(focus), "a row has come")

	require.NoError(t, wanted.Release(t.Context()))
	b.until("document.querySelectorAll('#locks .holds').length === 2")
	require.Nil(t, b.evaluate(focus), "its hold is gone, and no other has the focus")
	require.Equal(t, true, b.evaluate("document.getElementById('locks').stays"))
	require.NoError(t, below.Err())
	require.NoError(t, again.Err())
	require.Empty(t, b.takeProblems())
}

// What was typed before is not asked for any more, so that a server with many locks lists them once.
func TestTypingOnAbandonsTheRequest(t *testing.T) {
	testredis.NeedAll(t, "a browser")
	b := startBrowser(t)
	o := startOperated(t)
	o.take("orders")
	list := lockdebug.ListHandler(o.operator, "redis:6379")
	asked, abandoned := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("q") == "o" {
			close(asked)
			<-r.Context().Done()
			close(abandoned)
			return
		}
		list.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	b.open(server.URL + "/")
	b.evaluate("document.getElementById('q').focus()")
	b.call("Input.insertText", object{"text": "o"}, nil)
	<-asked
	b.call("Input.insertText", object{"text": "r"}, nil)
	b.until("location.search === '?q=or' && " + rowsWith(holds, "orders") + ".length === 1")
	select {
	case <-abandoned:
	case <-time.After(patience / 2):
		t.Fatal("the server goes on with what nobody waits for")
	}
	b.until("!document.getElementById('status').matches('.stale')")
	require.Empty(t, b.takeProblems())
}

// browser is a headless Chromium with one page. It is driven by the DevTools protocol over two pipes: messages of JSON,
// each with a zero byte behind it. When this process ends, so does the browser.
type browser struct {
	*testing.T
	to      *os.File
	session string // of the page

	mu       sync.Mutex
	calls    int
	answers  map[int]chan message
	problems []string // what the console shows as an error, and exceptions
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
}

// binary returns the installed Chromium, or skips the test; with CI=true it fails, unless FENCELOCK_CHROMIUM=none.
func binary(t *testing.T) string {
	named := os.Getenv("FENCELOCK_CHROMIUM")
	for _, name := range []string{named, "chromium-headless-shell", "chromium"} {
		if path, err := exec.LookPath(name); err == nil && named != "none" {
			return path
		}
	}
	const hint = "no chromium on PATH: install the Debian package chromium-headless-shell, or name a binary in " +
		"FENCELOCK_CHROMIUM"
	if os.Getenv("CI") == "true" && named != "none" {
		t.Fatal(hint)
	}
	t.Skip(hint)
	return ""
}

// startBrowser starts a browser with an empty page. It ends with the test.
func startBrowser(t *testing.T) *browser {
	path := binary(t)
	commands, to, err := os.Pipe()
	require.NoError(t, err)
	from, replies, err := os.Pipe()
	require.NoError(t, err)
	// Only the servers of this test are opened, so the sandbox, which root cannot have, is not needed.
	program := exec.Command(path, "--headless", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--user-data-dir="+t.TempDir(), "about:blank")
	program.ExtraFiles = []*os.File{commands, replies} // descriptors 3 and 4
	var log bytes.Buffer
	program.Stderr = &log
	require.NoError(t, program.Start())
	require.NoError(t, commands.Close())
	require.NoError(t, replies.Close())
	b := &browser{T: t, to: to, answers: map[int]chan message{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(from)
	}()
	t.Cleanup(func() {
		_ = to.Close() // the browser ends
		limit := time.AfterFunc(10*time.Second, func() { _ = program.Process.Kill() })
		defer limit.Stop()
		_ = program.Wait()
		<-read
		_ = from.Close()
		if t.Failed() {
			t.Logf("the browser's log:\n%s", log.Bytes())
		}
	})
	b.openPage()
	return b
}

// openPage makes the page, and has its errors reported.
func (b *browser) openPage() {
	var target struct{ TargetID string }
	b.call("Target.createTarget", object{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
}

// read passes each answer to its call, until the browser ends.
func (b *browser) read(from *os.File) {
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadBytes(0)
		b.mu.Lock()
		if err != nil {
			for id, answer := range b.answers {
				close(answer)
				delete(b.answers, id)
			}
			b.answers = nil
			b.mu.Unlock()
			return
		}
		var m message
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
			b.problems = append(b.problems, err.Error())
		}
		switch m.Method {
		case "Log.entryAdded", "Runtime.exceptionThrown":
			b.problems = append(b.problems, string(m.Params))
		}
		if answer := b.answers[m.ID]; answer != nil {
			answer <- m
			delete(b.answers, m.ID)
		}
		b.mu.Unlock()
	}
}

// call calls a method of the protocol and reads its result, unless result is nil.
func (b *browser) call(method string, params object, result any) {
	b.Helper()
	require.Empty(b, b.tryCall(method, params, result), method)
}

// tryCall is call, and returns the error of the method instead of failing the test.
func (b *browser) tryCall(method string, params object, result any) (failure string) {
	b.Helper()
	text := expect.NoError(json.Marshal(params)).In(b)
	answer := make(chan message, 1)
	b.mu.Lock()
	require.NotNil(b, b.answers, "the browser has ended")
	b.calls++
	m := message{ID: b.calls, Method: method, Params: text, SessionID: b.session}
	b.answers[m.ID] = answer
	b.mu.Unlock()
	text = expect.NoError(json.Marshal(m)).In(b)
	expect.NoError(b.to.Write(append(text, 0))).In(b)
	select {
	case got, ok := <-answer:
		require.True(b, ok, "%s: the browser has ended", method)
		if got.Error != nil {
			return got.Error.Message
		}
		if result != nil {
			require.NoError(b, json.Unmarshal(got.Result, result), "%s", got.Result)
		}
	case <-time.After(patience):
		b.Fatalf("%s: no answer", method)
	}
	return ""
}

// patience bounds the wait for an event that never comes.
const patience = time.Minute

// evaluate returns the value of an expression in the page.
func (b *browser) evaluate(expression string) any {
	b.Helper()
	value, failure := b.tryEvaluate(expression)
	require.Empty(b, failure, expression)
	return value
}

// tryEvaluate is evaluate, and returns why there is no value if the browser leaves the page at the same time.
func (b *browser) tryEvaluate(expression string) (value any, failure string) {
	b.Helper()
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails any
	}
	call := object{"expression": expression, "returnByValue": true, "awaitPromise": true}
	if failure = b.tryCall("Runtime.evaluate", call, &got); failure == "" {
		require.Nil(b, got.ExceptionDetails, expression)
	}
	return got.Result.Value, failure
}

// until returns when the expression is true in the page.
func (b *browser) until(expression string) {
	b.Helper()
	limit := time.Now().Add(patience)
	for {
		if value, _ := b.tryEvaluate("Boolean(" + expression + ")"); value == true {
			return
		}
		if time.Now().After(limit) {
			b.Fatalf("it never came about that %s in\n%s", expression, b.evaluate("document.documentElement.innerText"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// open opens an address and returns when the page is there.
func (b *browser) open(address string) {
	b.Helper()
	b.call("Page.navigate", object{"url": address}, nil)
	b.until(fmt.Sprintf("location.href === %q && document.readyState === 'complete'", address))
}

// screen sets the size of the page's window and its color scheme.
func (b *browser) screen(width, height int, scheme string) {
	b.Helper()
	b.call("Emulation.setDeviceMetricsOverride", object{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	}, nil)
	b.call("Emulation.setEmulatedMedia", object{
		"features": []object{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// takeProblems returns the errors that the page has reported since the last call.
func (b *browser) takeProblems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.problems
	b.problems = nil
	return all
}

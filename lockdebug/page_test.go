//go:build unix

package lockdebug_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lockdebug"
	"github.com/seed74116694/fencelock/rwlock"
)

// hostile is a meta that would take the page over, were it no text.
const hostile = `<script>document.title="taken"</script><img src=x onerror="document.title='taken'">`

// rowsWith is an expression: the rows of a section that have this text.
func rowsWith(section, text string) string {
	return "[...document.querySelectorAll('#" + section + " tbody tr')].filter((row) => row.textContent.includes('" +
		text + "'))"
}

// A real browser shows what comes and goes without a reload: a waiter, its hand-off, a loss.
func TestPageInABrowser(t *testing.T) {
	testredis.NeedAll(t, "a browser")
	b := startBrowser(t)
	redis := miniredis.RunT(t)
	p := testkit.Dial(t, redis.Addr(), rueidis.ClientOption{}, rwlock.WithMeta("web-1:4711"))
	q := testkit.Dial(t, redis.Addr(), rueidis.ClientOption{}, rwlock.WithMeta("batch-2:815"))
	ctx := t.Context()
	take := func(l *rwlock.Locker, name string, opts ...rwlock.LockOption) *rwlock.Lease {
		lease, err := l.Lock(ctx, name, opts...)
		require.NoError(t, err)
		return lease
	}
	take(p, "orders:"+strings.Repeat("long-", 40), rwlock.WithMeta(hostile))
	wanted := take(q, "report:2026")
	server := httptest.NewServer(lockdebug.Handler(p))
	t.Cleanup(server.Close)
	b.screen(1280, 800, "light")
	b.open(server.URL + "/")
	b.evaluate("window.stays = 'here'")

	// Text stays text.
	b.until("document.querySelector('#leases td[data-label=Meta]')")
	require.Equal(t, hostile, b.evaluate("document.querySelector('#leases td[data-label=Meta]').textContent"))
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
	b.until(rowsWith("waiters", "report:2026") + ".length === 1")
	require.Contains(t, b.evaluate(rowsWith("waiters", "report:2026")+"[0].textContent"), "batch-2:815 for write")
	mu := p.RWMutex("catalogue", rwlock.WithMeta(`<b>"café" & <i>co</i></b>`))
	require.NoError(t, mu.RLock(ctx))
	go func() { _ = mu.Lock(ctx) }()
	b.until(rowsWith("waiters", "inside this process") + ".length === 1")
	look(b)
	require.NoError(t, wanted.Release(ctx))
	lease := <-granted
	require.NotNil(t, lease)
	<-lease.Done()
	b.until(rowsWith("losses", "max hold") + ".length === 1 && " + rowsWith("waiters", "report") + ".length === 0")
	second := take(p, "report:2026")
	b.until(rowsWith("leases", second.Token().String()) + ".length === 1")

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
	b.until(rowsWith("leases", second.Token().String()) + ".length === 1")
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
	b.until("location.search === '?q=REPORT' && " + rowsWith("leases", "orders") + ".length === 0")
	require.Equal(b, 1.0, b.evaluate(rowsWith("leases", "report:2026")+".length"))
	require.Equal(b, "q", b.evaluate("document.activeElement.id"), "the field keeps its focus")
	b.evaluate("document.getElementById('q').value = ''; " +
		"document.getElementById('q').dispatchEvent(new Event('input')); null")
	b.until("location.search === '' && " + rowsWith("leases", "orders") + ".length === 1")
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

// Without scripts the search still works: the form sends it.
func TestPageInABrowserWithoutScripts(t *testing.T) {
	testredis.NeedAll(t, "a browser")
	b := startBrowser(t)
	locker := testkit.Dial(t, miniredis.RunT(t).Addr(), rueidis.ClientOption{})
	server := httptest.NewServer(lockdebug.Handler(locker))
	t.Cleanup(server.Close)
	b.call("Emulation.setScriptExecutionDisabled", object{"value": true}, nil)
	b.open(server.URL + "/?q=one")
	require.Equal(t, "one", b.evaluate("document.getElementById('q').value"))
	b.evaluate("document.getElementById('q').value = 'two'; null")
	_, _ = b.tryEvaluate("document.querySelector('form').requestSubmit(); null") // it leaves the page
	b.until("location.search === '?q=two' && document.readyState === 'complete'")
	require.Equal(t, "two", b.evaluate("document.getElementById('q').value"))
	require.Empty(t, b.takeProblems())
}

//go:build unix

package lockdebug_test

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/lockdebug"
	"github.com/seed74116694/fencelock/rwlock"
)

// operated is a page for an operator, and an application with locks in the same Redis.
type operated struct {
	*testing.T
	app, operator *rwlock.Locker
	url           string
}

func startOperated(t *testing.T) *operated {
	redis := miniredis.RunT(t)
	o := &operated{
		T: t, app: testkit.Dial(t, redis.Addr(), rueidis.ClientOption{}, rwlock.WithMeta(hostile),
			rwlock.WithTTL(2*time.Second)),
		operator: testkit.Dial(t, redis.Addr(), rueidis.ClientOption{}, rwlock.WithMeta("kim@ops")),
	}
	server := httptest.NewServer(lockdebug.OperatorHandler(o.operator, "redis:6379"))
	t.Cleanup(server.Close)
	o.url = server.URL
	return o
}

func (o *operated) take(name string) *rwlock.Lease {
	o.Helper()
	return expect.NoError(o.app.Lock(o.Context(), name)).In(o)
}

// do sends a request and returns its answer.
func (o *operated) do(method, query string, form url.Values, headers ...string) (status int, body string) {
	o.Helper()
	request, err := http.NewRequestWithContext(o.Context(), method, o.url+"/"+query, strings.NewReader(form.Encode()))
	require.NoError(o, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer := expect.NoError(http.DefaultClient.Do(request)).In(o)
	defer func() { _ = answer.Body.Close() }()
	text := expect.NoError(io.ReadAll(answer.Body)).In(o)
	require.Equal(o, "DENY", answer.Header.Get("X-Frame-Options"))
	require.Contains(o, answer.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	return answer.StatusCode, string(text)
}

// form returns the form of the question for a hold, with a reason.
func (o *operated) form(name, hold string) url.Values {
	o.Helper()
	form := url.Values{"name": {name}, "hold": {hold}}
	status, body := o.do(http.MethodGet, "?"+form.Encode(), nil)
	require.Equal(o, http.StatusOK, status, body)
	breaks := strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n") // as a browser sends them
	hidden := regexp.MustCompile(`type="hidden" name="(\w+)" value="([^"]*)"`)
	for _, field := range hidden.FindAllStringSubmatch(body, -1) {
		form.Set(field[1], breaks.Replace(html.UnescapeString(field[2])))
	}
	form.Set("reason", "stuck")
	form.Set("how", "wait")
	return form
}

func TestOperatorBreaksAHold(t *testing.T) {
	o := startOperated(t)
	for _, how := range []string{"wait", "now"} {
		lease := o.take(`a "lock" & <b>`)
		status, body := o.do(http.MethodGet, "?"+url.Values{"name": {lease.Name()}, "hold": {lease.Owner()}}.Encode(), nil)
		require.Equal(o, http.StatusOK, status)
		for _, shown := range []string{lease.Token().String(), "<dt>Held</dt>", "<dt>Left</dt>"} {
			require.Contains(o, body, shown, "what tells it from another hold of the lock")
		}
		_, body = o.do(http.MethodGet, "", nil)
		require.Contains(o, body, `?name=a%20%22lock%22%20%26%20%3cb%3e&amp;hold=`+lease.Owner())
		form := o.form(lease.Name(), lease.Owner())
		form.Set("how", how)
		status, body = o.do(http.MethodPost, "", form, "Sec-Fetch-Site", "same-origin")
		require.Equal(o, http.StatusOK, status, body)
		require.Contains(o, body, "The hold is gone.")
		<-lease.Done()
		by := testkit.As[*rwlock.BrokenError](o, lease.Err())
		require.Equal(o, rwlock.BrokenError{By: "kim@ops", Why: "stuck", Now: how == "now"}, *by)
		status, body = o.do(http.MethodPost, "", form)
		require.Equal(o, http.StatusNotFound, status, body)
		require.Contains(o, body, "gone before")
		status, body = o.do(http.MethodGet, "?"+url.Values{"name": form["name"], "hold": form["hold"]}.Encode(), nil)
		require.Equal(o, http.StatusNotFound, status, body)
		require.NotContains(o, body, "<form")
	}
}

// A browser sends the name that the page has, whatever is in it.
func TestOperatorBreaksAHoldOfAnyName(t *testing.T) {
	o := startOperated(t)
	for _, name := range []string{"a\nb", "a\rb", "a\r\nb", "\n", "a\x00b", " a ", `"a"`, "\ufeff\u2028ä"} {
		lease := o.take(name)
		form := o.form(name, lease.Owner())
		form.Set("how", "now")
		status, body := o.do(http.MethodPost, "", form)
		require.Equal(o, http.StatusOK, status, "%q: %s", name, body)
		require.Contains(o, body, "The hold is gone.")
	}
}

// A page without operators has no question and takes no answer.
func TestListHandlerBreaksNothing(t *testing.T) {
	o := startOperated(t)
	lease := o.take("n")
	form := o.form("n", lease.Owner())
	server := httptest.NewServer(lockdebug.ListHandler(o.operator, "redis:6379"))
	defer server.Close()
	o.url = server.URL
	status, _ := o.do(http.MethodPost, "", form)
	require.Equal(o, http.StatusMethodNotAllowed, status)
	_, body := o.do(http.MethodGet, "?"+form.Encode(), nil)
	require.NotContains(o, body, ">break</a>")
	require.NoError(o, lease.Err())
	require.NoError(o, lease.Renew(o.Context()))
}

func TestOperatorRefuses(t *testing.T) {
	o := startOperated(t)
	lease, other := o.take("n"), o.take("other")
	const crossOrigin = "cross-origin"
	for name, c := range map[string]struct {
		method  string
		change  func(form url.Values)
		headers []string
		status  int
		says    string
	}{
		"GET":         {http.MethodGet, nil, nil, http.StatusOK, "Break this hold?"},
		"PUT":         {http.MethodPut, nil, nil, http.StatusMethodNotAllowed, "must be GET or HEAD"},
		"no token":    {change: func(f url.Values) { f.Del("token") }, status: http.StatusForbidden, says: "token"},
		"a bad token": {change: func(f url.Values) { f.Set("token", "0123") }, status: http.StatusForbidden, says: "token"},
		"another's token": {change: func(f url.Values) {
			f.Set("token", o.form("other", other.Owner()).Get("token"))
		}, status: http.StatusForbidden, says: "token"},
		"another site":   {"", nil, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden, crossOrigin},
		"a sister site":  {"", nil, []string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden, crossOrigin},
		"another origin": {"", nil, []string{"Origin", "http://evil.example"}, http.StatusForbidden, crossOrigin},
		"no origin":      {"", nil, []string{"Origin", "null"}, http.StatusForbidden, crossOrigin},
		"no reason": {
			change: func(f url.Values) { f.Del("reason") }, status: http.StatusBadRequest, says: "must be 1 to 256 bytes",
		},
		"a long reason": {
			change: func(f url.Values) { f.Set("reason", strings.Repeat("é", 129)) },
			status: http.StatusBadRequest, says: "must be 1 to 256 bytes",
		},
		"no way": {change: func(f url.Values) { f.Del("how") }, status: http.StatusBadRequest, says: "Choose how."},
		"a large form": {
			change: func(f url.Values) { f.Set("reason", strings.Repeat("a", 1<<15)) },
			status: http.StatusBadRequest, says: "too large",
		},
	} {
		form := o.form("n", lease.Owner())
		if c.change != nil {
			c.change(form)
		}
		query := ""
		if c.method == "" {
			c.method = http.MethodPost
		} else {
			query = "?" + form.Encode()
		}
		status, body := o.do(c.method, query, form, c.headers...)
		require.Equal(o, c.status, status, "%s: %s", name, body)
		require.Contains(o, body, c.says, name)
		require.NoError(o, lease.Renew(o.Context()), name)
	}
	status, body := o.do(http.MethodGet, "?hold=x&name=", nil)
	require.Equal(o, http.StatusBadRequest, status, body)
	status, _ = o.do(http.MethodGet, "?hold=x&name=%zz", nil)
	require.Equal(o, http.StatusBadRequest, status)
}

// The answer does not wait for long: the hold stays unrenewable, and its process keeps what it was promised.
func TestOperatorNeedNotWait(t *testing.T) {
	t.Parallel()
	o := startOperated(t)
	lease := expect.NoError(o.app.Lock(o.Context(), "n", rwlock.WithoutRenewal(), rwlock.WithTTL(10*time.Second))).In(t)
	status, body := o.do(http.MethodPost, "", o.form("n", lease.Owner()))
	require.Equal(t, http.StatusAccepted, status, body)
	require.Contains(t, body, "It stands until")
	_, body = o.do(http.MethodGet, "", nil)
	require.Contains(t, body, "<b>broken</b>")
	require.NoError(t, lease.Err())
}

// operate breaks a hold in a browser, as an operator does.
func operate(b *browser) {
	b.Helper()
	o := startOperated(b.T)
	lease := o.take("orders:" + strings.Repeat("long-", 20))
	b.open(o.url + "/")
	b.until("document.querySelector('#locks td a')")
	b.evaluate("document.querySelector('#locks td a').click()")
	b.until("document.activeElement?.id === 'reason'") // the browser reports an autofocus that comes after another focus
	for _, width := range []int{1280, 360} {
		b.screen(width, 900, "light")
		b.until("innerWidth === " + strconv.Itoa(width))
		require.LessOrEqual(b, b.evaluate("document.documentElement.scrollWidth"), float64(width))
	}
	require.Equal(b, hostile, b.evaluate("document.querySelectorAll('dd')[3].textContent"))
	require.Equal(b, "wait", b.evaluate("document.querySelector('[name=how]:checked').value"))
	b.evaluate("document.querySelector('button').click()")
	require.Equal(b, true, b.evaluate("document.querySelector('#reason').matches(':invalid')"), "no reason")
	b.evaluate("document.querySelector('#reason').focus()")
	b.call("Input.insertText", object{"text": "stuck"}, nil)
	b.evaluate("document.querySelector('[value=now]').click(); document.querySelector('button').click()")
	b.until("document.querySelector('[role=status]')?.textContent === 'The hold is gone.'")
	<-lease.Done()
	require.ErrorAs(b, lease.Err(), new(*rwlock.BrokenError))
	require.Empty(b, b.takeProblems())
}

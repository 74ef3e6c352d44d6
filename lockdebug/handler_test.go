package lockdebug_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/lockdebug"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-lockdebug")
	goleak.VerifyTestMain(m)
}

// answer is the handler's answer.
func answer(l *rwlock.Locker, method, address string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	lockdebug.Handler(l).ServeHTTP(w, httptest.NewRequest(method, address, nil))
	return w
}

// object is a JSON object as a client reads it.
type object = map[string]any

// read returns the answer as JSON.
func read(w *testkit.World, l *rwlock.Locker, query string) object {
	w.Helper()
	got := answer(l, http.MethodGet, "/debug/locks?format=json"+query)
	require.Equal(w, http.StatusOK, got.Code, got.Body)
	require.Equal(w, "application/json; charset=utf-8", got.Header().Get("Content-Type"))
	var all object
	require.NoError(w, json.Unmarshal(got.Body.Bytes(), &all))
	return all
}

// rows returns a list of the answer.
func rows(all object, list string) (rows []object) {
	for _, row := range all[list].([]any) {
		rows = append(rows, row.(object))
	}
	return rows
}

const meta = `<script>alert("x")</script>`

// inUse runs a test with a process that has a lease, a waiter behind another process, and a loss.
func inUse(t *testing.T, test func(w *testkit.World, p *testkit.Process, lease *rwlock.Lease)) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		p, q := w.Process(), w.Process()
		lost := p.Take("lost", rwlock.Write, rwlock.WithMaxHold(time.Second))
		w.UntilOver(lost)
		lease := p.Take("held", rwlock.Read, rwlock.WithMeta(meta))
		q.Take("wanted", rwlock.Write, rwlock.WithMeta("the other"))
		w.Call(w.Ctx, func(ctx context.Context) error { _, err := p.Lock(ctx, "wanted"); return err })
		w.Pass(1500 * time.Millisecond)
		test(w, p, lease)
	})
}

func TestJSONHasLeasesWaitersLossesAndStats(t *testing.T) {
	inUse(t, func(w *testkit.World, p *testkit.Process, lease *rwlock.Lease) {
		all := read(w, p.Locker, "")
		require.Len(w, rows(all, "leases"), 1)
		held := rows(all, "leases")[0]
		left := held["left_ms"].(float64)
		require.InDelta(w, time.Until(lease.Deadline()).Milliseconds(), left, 1)
		require.Equal(w, object{
			"name": "held", "mode": "read", "token": lease.Token().String(), "owner": lease.Owner(), "hold": lease.Owner(),
			"meta": meta, "since": held["since"], "held_ms": 1500.0, "left_ms": left, "lost": false, "renewal_late": false,
			"count": 1.0, "shared": false, "lingering": false, "broken": false,
		}, held)
		require.Len(w, rows(all, "waiters"), 1)
		waits := rows(all, "waiters")[0]
		require.Equal(w, "wanted", waits["name"])
		require.Equal(w, 1500.0, waits["waited_ms"])
		require.Equal(w, "the other", waits["behind"].(object)["meta"])
		require.Len(w, rows(all, "losses"), 1)
		loss := rows(all, "losses")[0]
		require.Equal(w, "lost", loss["name"])
		require.Equal(w, string(rwlock.ReasonMaxHold), loss["reason"])
		require.Equal(w, 1500.0, loss["ago_ms"])
		require.Equal(w, 1.0, all["leases_total"])
		require.Equal(w, 1.0, all["waiters_total"])
		require.Regexp(w, `^.+:[0-9]+$`, all["process"])
		stats := all["stats"].(object)
		require.Equal(w, 2.0, stats["acquired"])
		require.Equal(w, 1.0, stats["waiting"])
		require.Contains(w, stats, "handed_off")
		require.GreaterOrEqual(w, len(stats), reflect.TypeFor[rwlock.Stats]().NumField(), "every counter")
	})
}

func TestPageShowsTextOnly(t *testing.T) {
	inUse(t, func(w *testkit.World, p *testkit.Process, lease *rwlock.Lease) {
		got := answer(p.Locker, http.MethodGet, "/debug/locks")
		require.Equal(w, http.StatusOK, got.Code)
		require.Equal(w, "text/html; charset=utf-8", got.Header().Get("Content-Type"))
		body := got.Body.String()
		require.NotContains(w, body, "<script>alert")
		require.Contains(w, body, "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;")
		for _, shown := range []string{
			lease.Token().String(), lease.Owner(), "1.5s", "wanted", "the other", "max hold", "handed off",
		} {
			require.Contains(w, body, shown)
		}
		require.NotContains(w, body, "style=")
		require.NotContains(w, body, "onclick")
	})
}

// The policy allows the page's own script and style, as they stand in the page, and nothing else.
func TestPolicyAllowsOnlyThePage(t *testing.T) {
	inUse(t, func(w *testkit.World, p *testkit.Process, _ *rwlock.Lease) {
		got := answer(p.Locker, http.MethodGet, "/")
		policy := got.Header().Get("Content-Security-Policy")
		for _, element := range []string{"script", "style"} {
			inside := regexp.MustCompile("(?s)<"+element+">(.*?)</"+element+">").FindAllSubmatch(got.Body.Bytes(), -1)
			require.Len(w, inside, 1)
			sum := sha256.Sum256(inside[0][1])
			require.Contains(w, policy, element+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';")
		}
		require.True(w, strings.HasPrefix(policy, "default-src 'none'; "))
		require.NotContains(w, policy, "unsafe")
		require.Equal(w, "nosniff", got.Header().Get("X-Content-Type-Options"))
		require.Equal(w, "no-store", got.Header().Get("Cache-Control"))
	})
}

func TestSearch(t *testing.T) {
	inUse(t, func(w *testkit.World, p *testkit.Process, lease *rwlock.Lease) {
		for search, want := range map[string][3]int{
			"held":                  {1, 0, 0},
			"HELD":                  {1, 0, 0},
			lease.Owner():           {1, 0, 0},
			lease.Token().String():  {1, 0, 0},
			"other":                 {0, 1, 0}, // the holder in the way
			"max%20hold":            {0, 0, 1},
			"%3Cscript":             {1, 0, 0},
			"there+is+nothing+like": {0, 0, 0},
		} {
			all := read(w, p.Locker, "&q="+search)
			got := [3]int{len(rows(all, "leases")), len(rows(all, "waiters")), len(rows(all, "losses"))}
			require.Equal(w, want, got, search)
		}
		body := answer(p.Locker, http.MethodGet, `/?q=%22%3E%3Cscript%3E`).Body.String()
		require.Contains(w, body, `value="&#34;&gt;&lt;script&gt;"`)
	})
}

func TestRefusedRequests(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		l := w.Process().Locker
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "BREAK"} {
			got := answer(l, method, "/")
			require.Equal(w, http.StatusMethodNotAllowed, got.Code)
			require.Equal(w, "GET, HEAD", got.Header().Get("Allow"))
			require.Contains(w, got.Body.String(), strconv.Quote(method))
			require.True(w, strings.HasPrefix(got.Header().Get("Content-Type"), "text/plain"))
		}
		for address, reason := range map[string]string{
			"/?format=xml":                       `format "xml": must be html or json`,
			"/?format=":                          `format "": must be html or json`,
			"/?format=<script>":                  `must be html or json`,
			"/?q=%zz":                            `query: invalid URL escape "%zz"`,
			"/?q=" + strings.Repeat("x", 513):    "q of 513 bytes: must be at most 512 bytes",
			"/?a=1;b=2":                          "query: ",
			"/?format=json&q=" + long("%C3%A4"):  "q of 600 bytes",
			"/?format=" + strings.Repeat("x", 9): "must be html or json",
			"/?prefix=" + long("%C3%A4"):         "prefix of 600 bytes: must be at most 512 bytes",
			"/?prefix=%ff":                       `prefix "\xff": must be valid UTF-8`,
			"/?sort=age":                         `sort "age": must be name, held or waiting`,
			"/?waiting=yes":                      `waiting "yes": must be 1, or none`,
		} {
			got := answer(l, http.MethodGet, strings.ReplaceAll(address, "<script>", "%3Cscript%3E"))
			require.Equal(w, http.StatusBadRequest, got.Code, address)
			require.Contains(w, got.Body.String(), reason)
			require.True(w, strings.HasPrefix(got.Header().Get("Content-Type"), "text/plain"))
			require.NotEmpty(w, got.Header().Get("Content-Security-Policy"))
		}
		got := answer(nil, http.MethodGet, "/")
		require.Equal(w, http.StatusInternalServerError, got.Code)
		require.Contains(w, got.Body.String(), "locker: nil: must be a locker")
	})
}

func long(char string) string { return strings.Repeat(char, 300) }

// Through a server, a HEAD has the headers of a GET and no body.
func TestHead(t *testing.T) {
	locker := testkit.Dial(t, miniredis.RunT(t).Addr(), rueidis.ClientOption{})
	server := httptest.NewServer(lockdebug.Handler(locker))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	for _, query := range []string{"", "?format=json"} {
		get := expect.NoError(client.Get(server.URL + query)).In(t)
		_ = get.Body.Close()
		head := expect.NoError(client.Head(server.URL + query)).In(t)
		require.NoError(t, head.Body.Close())
		require.Equal(t, http.StatusOK, head.StatusCode)
		require.Equal(t, get.Header.Get("Content-Type"), head.Header.Get("Content-Type"))
		require.Equal(t, get.Header.Get("Content-Security-Policy"), head.Header.Get("Content-Security-Policy"))
	}
}

// Of a crowd the page shows the part that has waited longest, and counts all.
func TestManyRows(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		const many, most = 1200, 500
		p := w.Process()
		mu := p.RWMutex("crowd")
		require.NoError(w, mu.Lock(w.Ctx))
		for range many {
			go func() { _ = mu.Lock(w.Ctx) }()
			w.Pass(time.Millisecond)
		}
		all := read(w, p.Locker, "")
		require.Equal(w, float64(many), all["waiters_total"])
		waits := rows(all, "waiters")
		require.Len(w, waits, most)
		for i, row := range waits {
			require.Equal(w, float64(many-i), row["waited_ms"])
		}
		body := answer(p.Locker, http.MethodGet, "/").Body.String()
		require.Contains(w, body, "500 of 1200 waiters are shown")
		require.Equal(w, most, strings.Count(body, "inside this process"))
		require.Empty(w, rows(read(w, p.Locker, "&q=nothing"), "waiters"))
		require.NoError(w, p.Close())
		all = read(w, p.Locker, "")
		require.Empty(w, rows(all, "leases"))
		require.Empty(w, rows(all, "waiters"))
	})
}

// What is late or lost comes first.
func TestUrgentRowsComeFirst(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		p := w.Process()
		p.Take("plain", rwlock.Write, rwlock.WithoutRenewal(), rwlock.WithTTL(time.Hour))
		mu := p.RWMutex("stuck", rwlock.WithMaxHold(time.Second))
		require.NoError(w, mu.Lock(w.Ctx))
		w.Pass(time.Second)
		p.Take("late", rwlock.Write)
		p.Link.Refuse()
		p.Link.Cut()
		w.Pass(w.TTL * 6 / 10)
		var names []any
		for _, row := range rows(read(w, p.Locker, ""), "leases") {
			names = append(names, row["name"])
		}
		require.Equal(w, []any{"stuck", "late", "plain"}, names)
		body := answer(p.Locker, http.MethodGet, "/").Body.String()
		require.Contains(w, body, "lost, not unlocked")
		require.Contains(w, body, "renewal late")
		p.Link.Restore()
	})
}

func TestDurations(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "0s", 7: "7ms", 999: "999ms", 1234: "1.2s", 65_432: "1m5s", 3_600_000: "1h0m", 90_061_000: "1d1h",
	} {
		require.Equal(t, want, lockdebug.Duration(ms))
	}
}

// The page about a Redis has what every process holds and waits for, and names the servers that do not answer.
func TestListHandler(t *testing.T) {
	testkit.InFakeTime(t, 3, func(w *testkit.World) {
		p, q := w.Process(), w.Process()
		held := p.Take("held", rwlock.Write, rwlock.WithMeta(meta))
		first := q.Take("read", rwlock.Read, rwlock.WithMeta("reader"))
		second := q.Take("read", rwlock.Read, rwlock.WithMeta("later"))
		w.Call(w.Ctx, func(ctx context.Context) error { _, err := q.Lock(ctx, "held"); return err })
		w.Pass(time.Second)
		handler := lockdebug.ListHandler(w.Process().Locker, "redis-1:6379")
		get := func(query string) *httptest.ResponseRecorder {
			got := httptest.NewRecorder()
			handler.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/"+query, nil))
			require.Equal(w, http.StatusOK, got.Code, got.Body)
			return got
		}
		var all object
		require.NoError(w, json.Unmarshal(get("?format=json").Body.Bytes(), &all))
		require.Equal(w, "redis-1:6379", all["redis"])
		require.NotContains(w, all, "process")
		require.NotContains(w, all, "errors")
		require.Len(w, rows(all, "leases"), 3)
		tokens := map[string]string{}
		for _, row := range rows(all, "leases") {
			require.Equal(w, 1000.0, row["held_ms"])
			require.Equal(w, false, row["broken"])
			tokens[row["meta"].(string)] = row["token"].(string)
		}
		require.Equal(w, map[string]string{
			meta: held.Token().String(), "reader": first.Token().String(), "later": second.Token().String(),
		}, tokens)
		waits := rows(all, "waiters")
		require.Len(w, waits, 1)
		require.Equal(w, held.Owner(), waits[0]["behind"].(object)["hold"])

		body := get("").Body.String()
		require.Contains(w, body, "<h1>Locks of <bdi>redis-1:6379</bdi></h1>")
		require.NotContains(w, body, "Last losses")
		require.NotContains(w, body, "<script>alert")
		require.NoError(w, json.Unmarshal(get("?format=json&q=reader").Body.Bytes(), &all))
		require.Len(w, rows(all, "leases"), 1)
		require.Empty(w, rows(all, "waiters"))

		q.Die()
		w.Call(w.Ctx, func(ctx context.Context) error { return p.Break(ctx, "read", first.Owner(), "stuck") })
		w.Pass(time.Second)
		require.NoError(w, json.Unmarshal(get("?format=json").Body.Bytes(), &all))
		for i, row := range rows(all, "leases") {
			require.Equal(w, i == 0, row["broken"], row)
			require.Equal(w, i == 0, row["meta"] == "reader", row)
		}
		require.Equal(w, 1, strings.Count(get("").Body.String(), "<b>broken</b>"))

		w.Minis[2].Crash()
		require.NoError(w, json.Unmarshal(get("?format=json").Body.Bytes(), &all))
		require.Len(w, rows(all, "leases"), 3)
		require.NotEmpty(w, all["errors"])
		require.Contains(w, get("").Body.String(), `<p class="error">mini-2:6379: `)
		require.NotContains(w, all, "unknown")
		w.Minis[2].Recover()
	})
}

// A hold that was given back, and that stands for its minimum, is none of a process that hangs.
func TestListHandlerMarksAMinimum(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		p := w.Process()
		w.Release(p.Take("tick", rwlock.Write, rwlock.WithMinHold(time.Minute)))
		handler := lockdebug.ListHandler(w.Process().Locker, "redis-1:6379")
		for query, text := range map[string]string{"": "<i>ended, stands for its minimum", "?format=json": `"ended":true`} {
			got := httptest.NewRecorder()
			handler.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/"+query, nil))
			require.Contains(w, got.Body.String(), text)
		}
		w.Pass(time.Minute)
	})
}

// Without two of three masters nothing is known of any lock: the page says so, and so does its status.
func TestListHandlerWithoutAQuorum(t *testing.T) {
	testkit.InFakeTime(t, 3, func(w *testkit.World) {
		p := w.Process()
		p.Take("held", rwlock.Write)
		p.Take("read", rwlock.Read)
		handler := lockdebug.ListHandler(w.Process().Locker, "redis-1:6379")
		get := func(query string) string {
			got := httptest.NewRecorder()
			handler.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/"+query, nil))
			require.Equal(w, http.StatusBadGateway, got.Code, got.Body)
			return got.Body.String()
		}
		w.Minis[2].Stop()
		w.Minis[1].Stop()
		var all object
		require.NoError(w, json.Unmarshal([]byte(get("?format=json")), &all))
		require.Equal(w, true, all["unknown"])
		leases := rows(all, "leases")
		require.Len(w, leases, 2)
		for _, row := range leases {
			require.Equal(w, "unknown", row["mode"])
			require.Equal(w, false, row["lost"])
			require.Contains(w, row["error"], "no quorum: 1 of the 2 masters")
		}
		body := get("")
		require.Contains(w, body, "<b>2</b> locks, others unknown</a>")
		require.Contains(w, body, `<span>may be held</span>`)
		w.Minis[0].Stop()
		require.Contains(w, get(""), `<p class="none">unknown</p>`)
		require.Contains(w, get(""), "<b>0</b> locks, others unknown</a>")
		for _, mini := range w.Minis {
			mini.Recover()
		}
	})
}

// No value adds an element, an attribute or a comment to the page: it has the same special characters as with a word.
func FuzzPageEscapesEveryValue(f *testing.F) {
	for _, seed := range []string{
		"", meta, `"><img src=x onerror=alert(1)>`, "'", "&lt;", "<!--", "-->", "]]>", "\x00", "\u202etxt", "\xff", "`${1}`",
		"javascript:alert(1)", "{{.}}", "</style></script>", "\n", "a\u2028b",
	} {
		f.Add(seed)
	}
	plain := expect.NoError(lockdebug.Render("word")).In(f)
	want := structureOf(plain)
	f.Fuzz(func(t *testing.T, value string) {
		got := expect.NoError(lockdebug.Render("x" + value)).In(t)
		require.Equal(t, want, structureOf(got))
		inSearch := 2 * strings.Count(value, "\u202e") // two fields, which are for the user to edit
		require.Equal(t, inSearch, strings.Count(string(got), "\u202e"))
		require.NotContains(t, string(got), "\x00")
	})
}

// structureOf returns the characters that make the structure of a page.
func structureOf(html []byte) string {
	return string(bytes.Map(func(r rune) rune {
		if strings.ContainsRune("<>\"'", r) {
			return r
		}
		return -1
	}, html))
}

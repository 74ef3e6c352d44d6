package lockdebug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/lockdebug"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// pages are the page of a process and that of a Redis, about the same locks.
func pages(w *testkit.World, l *rwlock.Locker) map[string]http.Handler {
	return map[string]http.Handler{
		"process": lockdebug.Handler(l), "redis": lockdebug.ListHandler(w.Process().Locker, "redis-1:6379"),
	}
}

// get returns an answer of a page.
func get(w *testkit.World, page http.Handler, query string) string {
	w.Helper()
	got := httptest.NewRecorder()
	page.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/"+query, nil))
	require.Equal(w, http.StatusOK, got.Code, got.Body)
	return got.Body.String()
}

// getJSON returns an answer of a page as JSON.
func getJSON(w *testkit.World, page http.Handler, query string) (all object) {
	w.Helper()
	require.NoError(w, json.Unmarshal([]byte(get(w, page, "?format=json"+query)), &all))
	return all
}

// names returns the names of the rows of a list, in its order.
func names(all object, list string) string {
	var names []string
	for _, row := range rows(all, list) {
		names = append(names, row["name"].(string))
	}
	return strings.Join(names, " ")
}

// wait has acquisitions wait for a lock.
func wait(w *testkit.World, p *testkit.Process, name string, n int) {
	for range n {
		w.Call(w.Ctx, func(ctx context.Context) error { _, err := p.Lock(ctx, name); return err })
		w.Pass(time.Second)
	}
}

func TestLocksInOrder(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		p := w.Process()
		for _, name := range []string{"b:old", "a:two", "b:one", "a:new"} {
			p.Take(name, rwlock.Write, rwlock.WithMeta("holder of "+name))
			w.Pass(time.Second)
		}
		wait(w, p, "b:one", 1)
		wait(w, p, "a:two", 2)
		for of, page := range pages(w, p.Locker) {
			for query, want := range map[string]string{
				"":                            "b:one a:two b:old a:new",
				"&sort=":                      "b:one a:two b:old a:new",
				"&sort=name":                  "a:new a:two b:old b:one",
				"&sort=held":                  "b:old a:two b:one a:new",
				"&sort=waiting":               "a:two b:one a:new b:old",
				"&waiting=1":                  "b:one a:two",
				"&waiting=1&sort=name":        "a:two b:one",
				"&waiting=1&prefix=a":         "a:two",
				"&waiting=&prefix=b":          "b:one b:old",
				"&prefix=*":                   "",
				"&q=NEW":                      "a:new",
				"&q=new&waiting=1":            "",
				"&q=holder+of&sort=name":      "a:new a:two b:old b:one",
				"&q=holder+of+a:two&prefix=b": "",
			} {
				all := getJSON(w, page, query)
				require.Equal(w, want, names(all, "locks"), "%s: %s", of, query)
				require.Equal(w, want, names(all, "leases"), "%s: %s", of, query)
				require.Equal(w, float64(len(strings.Fields(want))), all["locks_total"], "%s: %s", of, query)
			}
			all := getJSON(w, page, "&sort=waiting")
			require.Equal(w, "a:two a:two b:one", names(all, "waiters"))
			first := rows(all, "locks")[0]
			require.Equal(w, object{
				"name": "a:two", "holders": 1.0, "waiting": 2.0, "held_ms": 6000.0, "waited_ms": 2000.0,
			}, first)

			body := get(w, page, "?q=a:two&sort=held")
			require.Contains(w, body, `<bdi>a:two</bdi> <span class="late">1 holder, 2 waiting</span>`)
			require.Contains(w, body, `<a href="?q=a%3Atwo&amp;sort=held&amp;waiting=1" class="late"><b>2</b> waiting</a>`)
			require.Contains(w, body, `<a href="?q=a%3Atwo&amp;sort=held" aria-current="page"><b>1</b> lock</a>`)
			body = get(w, page, "?waiting=1")
			require.Contains(w, body, `<a href="?"><b>4</b> locks</a>`, "what the link leads to")
			require.NotContains(w, body, "b:old")

			// A search for a part of a lock leaves its numbers.
			body = get(w, page, "?q=holder+of+b:one")
			require.Contains(w, body, `<bdi>b:one</bdi> <span class="late">1 holder, 1 waiting</span>`)
			require.NotContains(w, body, "<span>1 holder</span>")
		}
	})
}

// Waiters come before any number of locks that nothing waits for, and so does what is urgent before them.
func TestCrowdHidesNoWaiter(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		const many = 1100
		p := w.Process()
		for i := range many {
			p.Take(fmt.Sprintf("crowd:%04d", i), rwlock.Write, rwlock.WithTTL(time.Hour))
		}
		w.Pass(time.Second)
		p.Take("wanted", rwlock.Write, rwlock.WithTTL(time.Hour))
		wait(w, p, "wanted", 1)
		dead := w.Process()
		broken := dead.Take("broken", rwlock.Write, rwlock.WithTTL(time.Hour))
		dead.Die()
		w.Call(w.Ctx, func(ctx context.Context) error { return p.Break(ctx, "broken", broken.Owner(), "stuck") })
		w.Pass(time.Second)
		for of, page := range pages(w, p.Locker) {
			locks, want := float64(many+1), "wanted crowd:"
			if of == "redis" {
				locks, want = many+2, "broken wanted crowd:"
			}
			all := getJSON(w, page, "")
			require.Equal(w, locks, all["leases_total"])
			require.Equal(w, locks, all["locks_total"])
			require.Len(w, rows(all, "leases"), 500)
			require.Len(w, rows(all, "locks"), 500)
			require.True(w, strings.HasPrefix(names(all, "leases"), want), of)
			require.Equal(w, "wanted", names(all, "waiters"))
			require.Contains(w, get(w, page, ""), fmt.Sprintf("500 of %v holds are shown", locks))
		}
	})
}

// A page says who broke a hold and why, and shows an owner where one was named.
func TestPageNamesBreakerAndOwner(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		p := w.Process()
		own := p.Take("own", rwlock.Write, rwlock.WithTTL(time.Hour), rwlock.WithoutRenewal())
		owned := reentrant.WithOwner(w.Ctx)
		held, err := reentrant.New(p.Locker).Lock(owned, "owned")
		require.NoError(w, err)
		owner, _ := reentrant.OwnerFrom(owned)
		ctx, cancel := context.WithTimeout(w.Ctx, time.Second)
		defer cancel()
		operator := w.Process(rwlock.WithMeta("kim <ops>"))
		require.Error(w, operator.Break(ctx, "own", own.Owner(), "stuck & <late>"))
		page := lockdebug.ListHandler(operator.Locker, "redis-1:6379")
		row := rows(getJSON(w, page, "&q=kim"), "leases")[0]
		require.Equal(w, "kim <ops>", row["broken_by"])
		require.Equal(w, "stuck & <late>", row["broken_why"])
		body := get(w, page, "")
		require.Contains(w, body, "<small>by <bdi>kim &lt;ops&gt;</bdi>: <bdi>stuck &amp; &lt;late&gt;</bdi></small>")
		require.Equal(w, 1, strings.Count(body, "<br>owner "))
		require.Contains(w, body, "<br>owner "+owner.String())
		require.NoError(w, held.Release(w.Ctx))
	})
}

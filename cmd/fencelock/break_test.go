package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestBreak(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	app := application(t, server.Option())
	at := "REDIS_URL=redis://" + server.Addr()
	held := hold(t, app, "orders", rwlock.WithMeta("web-1"))
	ended := make(chan error, 1)
	go func() {
		_, err := app.Lock(t.Context(), "orders", rwlock.WithMeta("web-2"))
		ended <- err
	}()
	untilSeen(t, app, "orders", func(s rwlock.State) bool { return len(s.Waiters) > 0 })
	waiter := expect.NoError(app.Inspect(t.Context(), "orders")).In(t).Waiters[0].Hold

	got := exits(t, statusOK, at, "break", "orders", "-hold", waiter, "-reason", "wrong version", "-by", "ann", patience)
	require.Contains(t, got.out, waiter+" is gone")
	by := testkit.As[*rwlock.BrokenError](t, <-ended)
	require.Equal(t, &rwlock.BrokenError{By: "ann", Why: "wrong version"}, by)

	got = exits(t, statusNo, at, "break", "orders", "-token", "7", "-reason", "none", patience)
	require.Contains(t, got.errs, "has the token 7")
	got = fencelock(t, at, "break", "orders", "-token", held.Token().String(), "-reason", "stuck", "-now", patience)
	require.Zero(t, got.status, got.errs)
	require.Equal(t, statusNo, fencelock(t, at, "inspect", "orders", patience).status)
	require.ErrorIs(t, held.Renew(t.Context()), rwlock.ErrLost)
	require.ErrorAs(t, held.Err(), &by)
	require.Contains(t, by.By, "@")
	got = exits(t, statusNo, at, "break", "orders", "-hold", waiter, "-reason", "again", patience)

	for _, words := range []string{
		"break -reason x -hold x", "break orders -hold x -reason x -timeout 20s -addr " + server.Addr(),
	} {
		require.Equal(t, statusUsage, fencelock(t, strings.Fields(words)...).status, words)
	}
}

// What is wrong is said, and nothing else.
func TestBreakSaysWhatItNeeds(t *testing.T) {
	const which, why = "needs -hold or -token: fencelock inspect orders shows them",
		"needs -reason: why, for the process and its log"
	for flags, says := range map[string]string{
		"-reason x":                    which,
		"-hold x":                      why,
		"-token 1":                     why,
		"":                             which + "; " + why,
		"-hold x -token 1 -reason x":   "takes either -hold or -token, not both",
		"-hold x -reason x -for -1s":   "-for must not be negative",
		"-hold x -for -1s":             why + "; -for must not be negative",
		"-now -hold x -token 1 -by me": "takes either -hold or -token, not both; " + why,
	} {
		got := exits(t, statusUsage, append([]string{"break", "orders"}, strings.Fields(flags)...)...)
		require.Equal(t, "fencelock break: "+says+"\n", got.errs, flags)
	}
}

// The hold of a process that hears nothing, as one that is down, stands and cannot be renewed. Its token names it.
func TestBreakWaits(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	at := "REDIS_URL=redis://" + server.Addr()
	app := application(t, server.Option())
	left := hold(t, app, "report")
	hold := expect.NoError(app.Inspect(t.Context(), "report")).In(t).Holders[0].Hold
	for _, by := range [][]string{
		{"-hold", hold}, {"-token", left.Token().String()}, {"-token", left.Token().String()}, // which it keeps
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		var out, errs output
		ended := make(chan int, 1)
		args := append([]string{"break", "report", "-reason", "down", "-addr", server.Addr(), patience}, by...)
		go func() { ended <- run(ctx, args, func(string) string { return "" }, &out, &errs) }()
		waits := regexp.MustCompile(`waiting until its process gives it back, for (59m|1h)\S+ at most; -now`)
		said := func() bool { return waits.MatchString(errs.String()) }
		require.Eventually(t, said, testkit.Patience, time.Millisecond)
		interrupt()
		require.Equal(t, statusFailed, <-ended)
		require.Regexp(t, `it stands until its process gives it back, for (59m|1h)\S+ at most`, errs.String())
	}
	got := exits(t, statusFailed, at, "break", "report", "-reason", "down", "-hold", hold, "-for", "1s", patience)
	require.Contains(t, got.errs, "it stands until")
	require.Contains(t, fencelock(t, at, "inspect", "report", patience).out, left.Token().String()+", broken")
	require.NoError(t, left.Err())
}

// A section of an RWMutex uses a token of its block, of which the servers show the last.
func TestBreakOfAnRWMutex(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	app := application(t, server.Option())
	mu := app.RWMutex("orders")
	require.NoError(t, mu.Lock(t.Context()))
	holder := expect.NoError(app.Inspect(t.Context(), "orders")).In(t).Holders[0]
	breaks := func(by ...string) ran {
		words := []string{"break", "orders", "-reason", "stuck", "-addr", server.Addr(), patience}
		return fencelock(t, append(words, by...)...)
	}
	got := breaks("-token", (holder.Token - 1).String())
	require.Equal(t, statusFailed, got.status)
	require.Contains(t, got.errs, "it may be one of hold "+holder.Hold)
	require.Equal(t, statusNo, breaks("-token", (holder.Token+1).String()).status, "no hold has had it")
	got = breaks("-hold", holder.Hold, "-now")
	require.Zero(t, got.status, got.errs)
}

// The page has the locks of an application that is down. It is for this machine, under no name but its own.
func TestServe(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	app := application(t, rueidis.ClientOption{InitAddress: []string{redis.Addr()}})
	hold(t, app, "orders", rwlock.WithMeta("<b>web-1</b>"))

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs output
	ended := make(chan int, 1)
	go func() {
		words := []string{"serve", "-listen", "127.0.0.1:0", "-addr", redis.Addr(), patience}
		ended <- run(ctx, words, func(string) string { return "" }, &out, &errs)
	}()
	line := regexp.MustCompile(`^http://127\.0\.0\.1:\d+/\n$`)
	require.Eventually(t, func() bool { return line.MatchString(out.String()) }, testkit.Patience, time.Millisecond,
		errs.String())
	address := strings.TrimSpace(out.String())

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(host string) (status int, body string) {
		request := expect.NoError(http.NewRequestWithContext(ctx, http.MethodGet, address, nil)).In(t)
		request.Host = host
		answer := expect.NoError(client.Do(request)).In(t)
		defer func() { _ = answer.Body.Close() }()
		text := expect.NoError(io.ReadAll(answer.Body)).In(t)
		return answer.StatusCode, string(text)
	}
	for _, host := range []string{"", "localhost", "localhost:8379", "127.0.0.1", "[::1]:8379", "[::1]"} {
		status, body := get(host)
		require.Equal(t, http.StatusOK, status, host)
		require.Contains(t, body, "orders")
		require.Contains(t, body, "&lt;b&gt;web-1&lt;/b&gt;")
		require.Contains(t, body, "Locks of <bdi>"+redis.Addr())
	}
	for _, host := range []string{"evil.example", "evil.example:8379", "10.0.0.1", "127.0.0.1.evil.example"} {
		status, body := get(host)
		require.Equal(t, http.StatusForbidden, status, host)
		require.NotContains(t, body, "orders")
	}
	interrupt()
	require.Zero(t, <-ended, errs.String())
}

func TestServeRefusesBadAddresses(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	for _, listen := range []string{"no address", "127.0.0.1:99999", redis.Addr()} {
		got := exits(t, statusUsage, "serve", "-listen", listen, "-addr", redis.Addr(), patience)
		require.Contains(t, got.errs, "fencelock serve: -listen "+listen)
	}
}

// Each address is asked for by itself, and by the name that the command line has.
func TestServeIsAskedForByItsAddress(t *testing.T) {
	for _, c := range []struct {
		address, named string
		fits, strange  []string
	}{
		{"127.0.0.1", "localhost", []string{"localhost:1", "127.0.0.1", "[::1]:1"}, []string{"", "10.0.0.1", "evil.example"}},
		{"10.0.0.1", "ops.example", []string{"10.0.0.1:1", "ops.example:1"}, []string{"localhost", "10.0.0.2"}},
		{"::", "", []string{"10.0.0.1:1", "[::1]", "127.0.0.1"}, []string{"", "localhost", "evil.example:1"}},
	} {
		page := onlyFor(net.ParseIP(c.address), c.named, http.NotFoundHandler())
		for want, hosts := range map[int][]string{http.StatusNotFound: c.fits, http.StatusForbidden: c.strange} {
			for _, host := range hosts {
				request, answer := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
				request.Host = host
				page.ServeHTTP(answer, request)
				require.Equal(t, want, answer.Code, "%s asked for as %q", c.address, host)
			}
		}
	}
}

// unknownIn checks that no sub-command takes the lock orders for free.
func unknownIn(t *testing.T, cause string, at ...string) {
	t.Helper()
	for _, words := range []string{"inspect orders", "inspect orders -json", "break orders -token 1 -reason x"} {
		got := exits(t, statusFailed, append(strings.Fields(words), at...)...)
		require.Contains(t, got.errs, cause, words)
		require.NotContains(t, got.out, "free")
		switch words {
		case "inspect orders":
			require.True(t, strings.HasPrefix(got.out, "orders: unknown\n"), got.out)
		case "inspect orders -json":
			var state jsonState
			require.NoError(t, json.Unmarshal([]byte(got.out), &state))
			require.Equal(t, "unknown", state.Mode)
			require.Contains(t, state.Error, cause)
		}
	}
}

// A lock is free only if the answers say so.
func TestUnknownIsNotFree(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	hold(t, application(t, server.Option()), "orders")
	at := "-addr=" + server.Addr()

	commandOn(t, server, strings.Fields("ACL SETUSER weak on >pw ~* &* +hello +client +ping +info +scan")...)
	weak := []string{at, "-user=weak", "-password=pw", patience}
	unknownIn(t, "NOPERM", weak...)
	for _, flags := range []string{"", "-waiting", "-older-than=2h"} { // it may be such a lock
		got := exits(t, statusFailed, append(strings.Fields("list "+flags), weak...)...)
		require.Regexp(t, `(?m)^orders +unknown +- +- +- +0 +- +-$`, got.out)
		require.Contains(t, got.errs, "NOPERM")
	}
	got := fencelock(t, append([]string{"list", "-json"}, weak...)...)
	require.Contains(t, got.out, `"mode":"unknown","error":"lock \"orders\": `)

	// A replica has what it had before, or nothing, until it has synchronized.
	commandOn(t, server, "REPLICAOF", "127.0.0.1", "1")
	unknownIn(t, "the server is a replica", at, patience)
	for _, prefix := range []string{"", "none"} {
		got := exits(t, statusFailed, "list", at, patience, "-prefix", prefix)
		require.Contains(t, got.errs, "the server is a replica")
		require.NotContains(t, got.errs, "is in use")
	}
}

func TestUnknownWithoutAQuorum(t *testing.T) {
	t.Parallel()
	servers, addrs := startThree(t)
	app := applicationOver(t, addrs)
	hold(t, app, "orders")
	// The last master may be later.
	untilSeen(t, app, "orders", func(s rwlock.State) bool { return len(s.Masters[2].Holders) == 1 })

	servers[0].Kill()
	servers[1].Kill()
	at := "-addr=" + strings.Join(addrs, ",")
	unknownIn(t, "no quorum: 1 of the 2 masters", at, patience)
	got := exits(t, statusFailed, "list", at, patience)
	require.Regexp(t, `(?m)^orders +unknown `, got.out)
	require.Contains(t, got.errs, "no quorum: 1 of the 2 masters")
}

// Nothing that another process has chosen controls the terminal, and what is JSON stays JSON.
func TestTerminal(t *testing.T) {
	for text, shown := range map[string]string{
		"plain äöü 語 … 🔒\n": "plain äöü 語 … 🔒\n",
		"\x1b[2J":           `\u001b[2J`,
		"\x9b31m":           `\x9b31m`,
		"\u009b31m\x7f\r\t": `\u009b31m\u007f\u000d` + "\t",
		"\u202egnp":         `\u202egnp`,
		"\U000e0001\xff":    `\udb40\udc01\xff`,
	} {
		var out bytes.Buffer
		require.Equal(t, len(text), expect.NoError(terminal{&out}.Write([]byte(text))).In(t))
		require.Equal(t, shown, out.String())
	}
	var out bytes.Buffer
	meta := "a\x1b\u009b\x7f\u202e\U000e0001"
	state := rwlock.State{Name: "x", Holders: []rwlock.Holder{{Meta: meta}}}
	require.NoError(t, printJSON(terminal{&out}, state, nil))
	require.NotContains(t, out.String(), "\u009b")
	var read jsonState
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	require.Equal(t, meta, read.Holders[0].Meta)
	require.Equal(t, `"\x9b31mred"`, printable("\x9b31mred"))
	require.Equal(t, `lock: \nok`, plain(fmt.Errorf("rwlock: lock: \nok")))
}

// An answer with a length that no server gives ends the connection, however it arrives.
func TestBoundedConn(t *testing.T) {
	good := "*2\r\n$5\r\n*9\r\n$\r\n%1\r\n+" + strings.Repeat("long", 99) + "\r\n:1\r\n$-1\r\n*-1\r\n*0\r\n_\r\n" +
		"$?\r\n;4\r\n$999\r\n;0\r\n=6\r\ntxt:$9\r\n#t\r\n"
	read := func(text string, size int) (string, error) {
		client, server := net.Pipe()
		defer func() { _ = client.Close() }()
		go func() {
			for part := text; part != ""; part = part[min(size, len(part)):] {
				_, _ = server.Write([]byte(part[:min(size, len(part))]))
			}
			_ = server.Close()
		}()
		got, err := io.ReadAll(&boundedConn{Conn: client})
		return string(got), err
	}
	for size := 1; size < len(good); size += 3 {
		require.Equal(t, good, expect.NoError(read(good, size)).In(t))
		for header, says := range map[string]string{
			"*4611686018427387904":        "a list of 4611686018427387904 elements",
			"*2000000000":                 "a list of 2000000000 elements",
			"%2000000000":                 "a list of 2000000000 elements",
			"$9000000000000000000":        "a text of 9000000000000000000 bytes",
			"$99999999999999999999":       "a text of 9223372036854775807 bytes",
			strings.Repeat("*1\r\n", 200): "101 deep",
		} {
			_, err := read(good+header+"\r\n", size)
			expect.Fails(t, err, says, "it is broken, or no Redis")
		}
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis.sock")
	server := testredis.StartBinary(t, binary(t), "--unixsocket", socket)
	app := application(t, server.Option())
	at := "-addr=" + server.Addr()
	long := "orders:" + strings.Repeat("long", 20) + ":end"
	hold(t, app, long, rwlock.WithMeta("web-1"))
	// Times are in whole milliseconds.
	untilSeen(t, app, long, func(s rwlock.State) bool { return s.Holders[0].Held > 2*time.Millisecond })
	hold(t, app, "b", rwlock.WithMeta("web-2"))
	queue(t, app, "b", rwlock.WithMeta("web-3"))
	tick := hold(t, app, "tick", rwlock.WithMinHold(time.Hour))
	require.NoError(t, tick.Release(t.Context()))
	first := func(flags string) string {
		got := exits(t, statusOK, append(strings.Fields("list "+flags), at, patience)...)
		lines := strings.Split(got.out, "\n")
		return strings.Fields(lines[1])[0]
	}
	require.Equal(t, "b", first(""))
	require.Equal(t, "orders:longlonglonglongl…onglonglonglonglong:end", first("-sort held"))
	require.Equal(t, long, first("-sort held -wide"))
	require.Equal(t, "b", first("-sort waiting"))
	require.Contains(t, fencelock(t, "REDIS_URL=unix://"+socket, "list", patience).out, "web-2", "by the socket")
	got := fencelock(t, "list", at, patience, "-limit", "2")
	require.Contains(t, got.out, "\n2 locks, 1 waiting, the oldest held for ")
	require.Contains(t, got.errs, "1 more locks are not shown")
	got = fencelock(t, "list", at, patience, "-limit", "1", "-sort", "held", "-json")
	require.Equal(t, 1, strings.Count(got.out, "\n"), got.out)
	require.Contains(t, got.out, long)
	for _, flags := range []string{"-sort size", "-limit -1"} {
		require.Equal(t, statusUsage, fencelock(t, append(strings.Fields("list "+flags), at)...).status)
	}

	// A hold that its process has released stands for its minimum, and is no dead holder.
	got = fencelock(t, "inspect", "tick", at, patience)
	require.Regexp(t, `(?m)^\S+ +write +\S+ +(59m|1h)\S+ +\S+ +-, ended$`, got.out)
	require.Contains(t, fencelock(t, "inspect", "tick", at, patience, "-json").out, `"ended":true`)
	got = fencelock(t, "watch", "tick", at, patience, "-for", "1s")
	require.Regexp(t, `  ended    write  \S+  \S+, stands for its minimum, (59m|1h)`, got.out)
	got = exits(t, statusNo, "break", "tick", at, patience, "-token", tick.Token().String(), "-reason", "x")
}

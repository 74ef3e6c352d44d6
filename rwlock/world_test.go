package rwlock_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// world is one Redis and the processes that use it: either miniredis inside a synctest bubble, where time is fake and
// exact, or real servers, where a test waits for events. Its methods belong to the test's own goroutine.
type world struct {
	backend
	ttl      time.Duration   // of every process that is not told otherwise: longer than a busy machine stands still
	short    time.Duration   // for a lease whose end a test waits for; the same in fake time
	observer *process        // inspects; takes no locks
	opts     []rwlock.Option // of each
	twice    bool            // every script of the processes made from now on runs twice
}

// inFakeTime runs a test on miniredis in a bubble.
func inFakeTime(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{backend: backend{t: t, ctx: t.Context(), mini: testredis.NewMini(t)}, ttl: 10 * time.Second}
		w.short = w.ttl
		w.observer = w.process()
		test(w)
	})
}

// onServer runs a test on a real server, which is emptied first.
func onServer(t *testing.T, server *testredis.Server, test func(w *world)) {
	t.Helper()
	onServers(backend{t: t, ctx: t.Context(), server: server}, test)
}

// onGroup runs a test on several real servers, which are emptied first.
func onGroup(t *testing.T, group testredis.Deployment, test func(w *world), opts ...rwlock.Option) {
	t.Helper()
	onServers(backend{t: t, ctx: t.Context(), group: group}, test, opts...)
}

func onServers(b backend, test func(w *world), opts ...rwlock.Option) {
	b.flushAll()
	w := &world{backend: b, ttl: unhurried(4 * time.Second), short: unhurried(2 * time.Second), opts: opts}
	if len(opts) > 0 { // replicas take their time on a busy machine
		w.ttl, w.short = unhurried(5*time.Second), unhurried(4*time.Second)
	}
	w.observer = w.process()
	test(w)
}

// unhurried is a time on real servers, or more of it under the race detector, which makes all that runs beside it slow.
func unhurried(d time.Duration) time.Duration {
	if raceDetector {
		return d * 5 / 2
	}
	return d
}

// place is where a test can run.
type place struct {
	name  string
	enter func(t *testing.T, test func(w *world))
}

// everyPlace returns fake time and every server binary that is installed. The servers run until t ends, and each serves
// all that enter it one after the other. Without any binary there is a place that says what to install.
func everyPlace(t *testing.T) []place {
	all := []place{{"fake time", inFakeTime}}
	for _, binary := range testredis.Binaries() {
		server := testredis.StartBinary(t, binary)
		all = append(all, place{filepath.Base(binary), func(t *testing.T, test func(w *world)) {
			onServer(t, server, test)
		}})
	}
	if len(all) == 1 {
		all = append(all, place{"redis-server", func(t *testing.T, _ func(*world)) { testredis.Require(t) }})
	}
	return all
}

// everywhere runs a test in every place, as a subtest each. On a real server most of the time is waiting, so it runs
// beside other tests that wait.
func everywhere(t *testing.T, test func(w *world)) {
	t.Parallel()
	everywhereAlone(t, test)
}

// everywhereAlone is everywhere for a test that other tests would disturb, since it counts allocations.
func everywhereAlone(t *testing.T, test func(w *world)) {
	for _, p := range everyPlace(t) {
		t.Run(p.name, func(t *testing.T) { p.enter(t, test) })
	}
}

// process is a locker with its own client and its own link to the server, as a process of its own has.
type process struct {
	*rwlock.Locker
	link   *testredis.Link
	client rueidis.Client
	w      *world
}

// process starts a locker with the world's TTL. It is closed when the test ends.
func (w *world) process(opts ...rwlock.Option) *process {
	w.t.Helper()
	link := w.newLink()
	return w.processOver(link, link.Option(), opts...)
}

// processOver starts a locker over a client of that option, as process does. The link is the one of its commands.
func (w *world) processOver(link *testredis.Link, option rueidis.ClientOption, opts ...rwlock.Option) *process {
	w.t.Helper()
	connect := rueidis.NewClient
	if w.group != nil {
		connect = func(o rueidis.ClientOption) (rueidis.Client, error) { return rwlock.Dial("", o) }
	}
	all := slices.Concat([]rwlock.Option{rwlock.WithTTL(w.ttl)}, w.opts, opts)
	if w.mini == nil {
		option.Dialer.Timeout = patience // on a busy machine a second is short
		all = append(all, testredis.Patience())
	}
	client, err := connect(option)
	require.NoError(w.t, err)
	w.t.Cleanup(client.Close)
	locker, err := rwlock.New(client, all...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = locker.Close() })
	p := &process{Locker: locker, link: link, client: client, w: w}
	if w.twice {
		p.sendTwice()
	}
	return p
}

// die cuts the process off for good, as a crash does. What it held and waited for stays on the server until it expires.
func (p *process) die() {
	p.link.Refuse()
	p.link.Cut()
	p.w.settle() // the server knows that nobody listens there any more
}

// inspect returns how the lock stands.
func (w *world) inspect(name string) rwlock.State {
	w.t.Helper()
	s, err := w.observer.Inspect(w.ctx, name)
	require.NoError(w.t, err)
	return s
}

// untilWaiting returns when n acquisitions are queued on the server.
func (w *world) untilWaiting(name string, n int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d wait for %q", n, name), func() bool { return len(w.inspect(name).Waiters) == n })
}

var nameDecoder = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// hasOnlyTokens reports whether the server has nothing of any lock but its token.
func (w *world) hasOnlyTokens() bool {
	for _, key := range w.lockKeys() {
		// What has expired stays until the lock is used again.
		if name, is := strings.CutSuffix(key, "}:x"); is {
			if w.command("ZCOUNT", key, strconv.FormatInt(time.Now().UnixMilli(), 10), "+inf") != int64(0) {
				return false
			}
			name = nameDecoder.Replace(name[strings.IndexByte(name, '{')+1:])
			if w.observer == nil || w.observer.acquireOnce(name) != nil {
				return false
			}
		}
	}
	for _, key := range w.lockKeys() {
		if !strings.HasSuffix(key, "}") {
			return false
		}
		for _, field := range w.command("HKEYS", key).([]any) {
			if field != "t" && field != "s" && field != "c" { // c goes with the next that is not straight
				return false
			}
		}
	}
	return true
}

// requireLess checks a time in fake time only: a busy machine adds to what a real server and its clients need.
func (w *world) requireLess(took, limit time.Duration, because string) {
	w.t.Helper()
	if w.mini != nil {
		require.Less(w.t, took, limit, because)
	}
}

// untilOnlyTokens returns when the last tombstone has expired, which in fake time may take a minute.
func (w *world) untilOnlyTokens() {
	w.t.Helper()
	if w.mini == nil {
		w.eventually("only tokens are left", w.hasOnlyTokens)
		return
	}
	for limit := time.Now().Add(2 * patience); !w.hasOnlyTokens(); w.pass(time.Second) {
		require.True(w.t, time.Now().Before(limit), "keys left: %q", w.keys())
	}
}

// onlyTokensLeft fails the test if anything of a lock but its token is on the server.
func (w *world) onlyTokensLeft() {
	w.t.Helper()
	w.settle()
	require.True(w.t, w.hasOnlyTokens(), "keys left: %q", w.keys())
}

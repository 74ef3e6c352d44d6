package rwlock_test

import (
	"context"
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
// exact, or real servers, where a test waits for events with a short TTL. Its methods belong to the test's own
// goroutine.
type world struct {
	t   *testing.T
	ctx context.Context // ends with the test
	ttl time.Duration   // of every process that is not told otherwise: 10 s in fake time, 1 s on real servers

	mini       *testredis.Mini      // in fake time
	server     *testredis.Server    // the one real server, where there is one
	deployment testredis.Deployment // the real servers, where they are more or found otherwise
	observer   *process             // inspects; takes no locks
	twice      bool                 // every script of the processes made from now on runs twice
}

// inFakeTime runs a test on miniredis in a bubble.
func inFakeTime(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ctx: t.Context(), ttl: 10 * time.Second, mini: testredis.NewMini(t)}
		w.observer = w.process()
		test(w)
	})
}

// onServer runs a test on a real server, which is emptied first.
func onServer(t *testing.T, server *testredis.Server, test func(w *world)) {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), ttl: time.Second, server: server}
	w.flushAll()
	w.observer = w.process()
	test(w)
}

// onDeployment runs a test on a deployment, which is emptied first.
func onDeployment(t *testing.T, d testredis.Deployment, test func(w *world)) {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), ttl: time.Second, deployment: d}
	w.flushAll()
	w.observer = w.process()
	test(w)
}

// real returns the servers of a world that is not in fake time.
func (w *world) real() testredis.Deployment {
	if w.server != nil {
		return w.server
	}
	return w.deployment
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

// everywhere runs a test in every place, as a subtest each.
func everywhere(t *testing.T, test func(w *world)) {
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
	if w.deployment != nil {
		connect = func(o rueidis.ClientOption) (rueidis.Client, error) { return rwlock.Dial("", o) }
	}
	client, err := connect(option)
	require.NoError(w.t, err)
	w.t.Cleanup(client.Close)
	locker, err := rwlock.New(client, append([]rwlock.Option{rwlock.WithTTL(w.ttl)}, opts...)...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = locker.Close() })
	p := &process{Locker: locker, link: link, client: client, w: w}
	if w.twice {
		p.sendTwice()
	}
	return p
}

func (w *world) newLink() *testredis.Link {
	switch {
	case w.mini != nil:
		return w.mini.NewLink()
	case w.deployment != nil:
		return testredis.NewLink(w.t, w.deployment.Option())
	}
	return testredis.NewProxy(w.t, w.server.Addr()).Link
}

// die cuts the process off for good, as a crash does. What it held and waited for stays on the server until it expires.
func (p *process) die() {
	p.link.Refuse()
	p.link.Cut()
}

// pass lets time go by: fake time only, since on a real server nothing is exact.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	require.NotNil(w.t, w.mini, "pass is for fake time")
	time.Sleep(d)
	w.settle()
}

// settle returns when every goroutine of the bubble waits for time to go by; on a real server, at once.
func (w *world) settle() {
	if w.mini != nil {
		synctest.Wait()
	}
}

// patience bounds waiting for an event that never comes. It is no part of any measurement.
const patience = time.Minute

// eventually returns when the condition holds. In fake time it is looked at after every millisecond, and at once if all
// is settled.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	limit := time.Now().Add(patience)
	for w.settle(); !holds(); w.settle() {
		if time.Now().After(limit) {
			w.t.Fatalf("it never came about that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
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

// flushAll empties the server. Some time goes by before the next command: the server's clock is all that keeps tokens
// apart then.
func (w *world) flushAll() {
	w.t.Helper()
	if w.mini != nil {
		w.mini.FlushAll()
		w.pass(time.Millisecond)
		return
	}
	for _, master := range w.real().Masters() {
		_, err := master.Command("FLUSHALL")
		require.NoError(w.t, err)
	}
}

// keys returns the names of all keys on the server, sorted.
func (w *world) keys() []string {
	w.t.Helper()
	if w.mini != nil {
		return w.mini.Miniredis().Keys()
	}
	var all []string
	for _, master := range w.real().Masters() {
		reply, err := master.Command("KEYS", "*")
		require.NoError(w.t, err)
		for _, key := range reply.([]any) {
			all = append(all, key.(string))
		}
	}
	slices.Sort(all)
	return all
}

// marker is the key that tells clients the layout of the locks. It stays.
const marker = "fencelock:master"

func isMarker(key string) bool { return strings.HasSuffix(key, ":master") }

// lockKeys returns the names of all keys on the server but the marker, sorted.
func (w *world) lockKeys() []string {
	return slices.DeleteFunc(w.keys(), isMarker)
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
			if field != "t" && field != "s" {
				return false
			}
		}
	}
	return true
}

// onlyTokensLeft fails the test if anything of a lock but its token is on the server.
func (w *world) onlyTokensLeft() {
	w.t.Helper()
	w.settle()
	require.True(w.t, w.hasOnlyTokens(), "keys left: %q", w.keys())
}

// lock takes the lock, and fails the test if that fails.
func (p *process) lock(name string, mode rwlock.Mode, opts ...rwlock.LockOption) *rwlock.Lease {
	p.w.t.Helper()
	return p.acquire(p.w.ctx, name, mode, opts...).granted()
}

// pending is an acquisition under way in a goroutine of its own.
type pending struct {
	w     *world
	over  chan struct{} // closed when lease or err is set
	lease *rwlock.Lease
	err   error
	at    time.Time // when it was over
}

// acquire starts an acquisition.
func (p *process) acquire(ctx context.Context, name string, mode rwlock.Mode, opts ...rwlock.LockOption) *pending {
	a := &pending{w: p.w, over: make(chan struct{})}
	take := p.Lock
	if mode == rwlock.Read {
		take = p.RLock
	}
	go func() {
		defer close(a.over)
		a.lease, a.err = take(ctx, name, opts...)
		a.at = time.Now()
	}()
	return a
}

// queue starts an acquisition and returns when it is queued on the server, behind whoever is queued already.
func (p *process) queue(name string, mode rwlock.Mode, opts ...rwlock.LockOption) *pending {
	p.w.t.Helper()
	n := len(p.w.inspect(name).Waiters)
	a := p.acquire(p.w.ctx, name, mode, opts...)
	p.w.untilWaiting(name, n+1)
	return a
}

// wait returns when the acquisition is over.
func (a *pending) wait() {
	a.w.t.Helper()
	a.w.untilClosed(a.over)
}

// first returns the one that is over first.
func (w *world) first(a, b *pending) *pending {
	w.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-a.over:
		return a
	case <-b.over:
		return b
	case <-limit.C:
		w.t.Fatal("neither acquisition ended")
		return nil
	}
}

// granted waits for the lease.
func (a *pending) granted() *rwlock.Lease {
	a.w.t.Helper()
	a.wait()
	require.NoError(a.w.t, a.err)
	return a.lease
}

// failed waits for the error.
func (a *pending) failed() error {
	a.w.t.Helper()
	a.wait()
	require.Error(a.w.t, a.err)
	require.Nil(a.w.t, a.lease)
	return a.err
}

// isWaiting reports whether the acquisition is still under way once all is settled.
func (a *pending) isWaiting() bool {
	a.w.settle()
	select {
	case <-a.over:
		return false
	default:
		return true
	}
}

// untilOver returns when the lease has ended.
func (w *world) untilOver(lease *rwlock.Lease) {
	w.t.Helper()
	w.untilClosed(lease.Done())
}

// untilClosed returns when the channel is closed.
func (w *world) untilClosed(done <-chan struct{}) {
	w.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		w.t.Fatal("the end never came")
	}
}

// release gives the leases back, and fails the test if that fails.
func (w *world) release(leases ...*rwlock.Lease) {
	w.t.Helper()
	for _, lease := range leases {
		require.NoError(w.t, lease.Release(w.ctx))
	}
}

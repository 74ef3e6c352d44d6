package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// Patience bounds the wait for an event that never comes. It is no part of any measurement. A busy machine with the
// race detector has needed a minute for what takes two seconds else.
const Patience = 3 * time.Minute

// World is one deployment and the processes that use it: miniredis inside a synctest bubble, where time is fake and
// exact, or real servers, where a test waits for events. Its methods belong to the test's own goroutine.
type World struct {
	*testing.T
	Ctx context.Context // ends with the test

	Mini    *testredis.Mini      // the first master in fake time
	Minis   []*testredis.Mini    // all of them
	Server  *testredis.Server    // the first real master
	Servers []*testredis.Server  // all of them
	Group   testredis.Deployment // the real servers, where a client finds them by other means than one address each

	TTL   time.Duration   // of every process that has no other: longer than a busy machine stands still
	Opts  []rwlock.Option // of every process
	Net   Net             // of every process
	Twice bool            // every script of the processes made from now on runs twice
	Fresh bool            // the masters have no markers yet; otherwise their set was founded long ago

	observer *Process
	operator rueidis.Client // runs commands in fake time
	scripts  *saltedScripts
	founded  map[string]bool // by prefix and masters
}

// DefaultTTL is the TTL of a locker without options.
const DefaultTTL = 10 * time.Second

// InFakeTime runs a test over so many masters on miniredis, in a bubble.
func InFakeTime(t *testing.T, masters int, test func(w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range masters {
			mini := testredis.NewMini(t)
			if masters > 1 {
				mini.SetAddr(fmt.Sprintf("mini-%d:6379", i))
			}
			w.Minis = append(w.Minis, mini)
		}
		w.Mini = w.Minis[0]
		test(w)
	})
}

// Each runs a test for each case, by its name.
func Each[C any](t *testing.T, cases map[string]C, test func(t *testing.T, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// EachInFakeTime runs a test for each case, by its name, over so many masters, each in a bubble of its own.
func EachInFakeTime[C any](t *testing.T, masters int, cases map[string]C, test func(w *World, c C)) {
	t.Helper()
	Each(t, cases, func(t *testing.T, c C) { InFakeTime(t, masters, func(w *World) { test(w, c) }) })
}

// OnServers is a world of real servers, each a master.
func OnServers(t *testing.T, servers ...*testredis.Server) *World {
	w := newWorld(t)
	w.Server, w.Servers = servers[0], servers
	return w
}

// Start is a world of so many real servers, which it starts, each a master.
func Start(t *testing.T, masters int, args ...string) *World {
	t.Helper()
	var servers []*testredis.Server
	for range masters {
		servers = append(servers, testredis.Start(t, args...))
	}
	return OnServers(t, servers...)
}

// OnGroup is a world of a deployment with servers that the client finds itself.
func OnGroup(t *testing.T, group testredis.Deployment) *World {
	w := newWorld(t)
	w.Group, w.Net.Tuned = group, true
	return w
}

func newWorld(t *testing.T) *World {
	salted := &saltedScripts{digests: make(map[string]scripts.Name)}
	return &World{
		T: t, Ctx: t.Context(), TTL: DefaultTTL, scripts: salted, founded: make(map[string]bool),
	}
}

// Part is a world of some of the masters.
func (w *World) Part(masters ...int) *World {
	part := *w
	part.Minis, part.Servers, part.observer = nil, nil, nil
	for _, i := range masters {
		if w.Mini != nil {
			part.Minis = append(part.Minis, w.Minis[i])
			part.Mini = part.Minis[0]
		} else {
			part.Servers = append(part.Servers, w.Servers[i])
			part.Server = part.Servers[0]
		}
	}
	return &part
}

// Deployment returns the real servers, where a client finds them with one option.
func (w *World) Deployment() testredis.Deployment {
	if w.Server != nil {
		return w.Server
	}
	return w.Group
}

// Command runs a command on the first master, in a Cluster on the master of its key. It returns a string, an int64,
// nil, or a list or map of these.
func (w *World) Command(args ...string) any {
	w.Helper()
	if w.Mini == nil {
		reply, err := w.Deployment().Command(args...)
		require.NoError(w, err, "%q", args)
		return reply
	}
	if w.operator == nil {
		w.operator = w.Mini.Client(w.T)
	}
	reply, err := w.operator.Do(w.Ctx, w.operator.B().Arbitrary(args...).Build()).ToAny()
	require.NoError(w, err, "%q", args)
	return reply
}

// On runs a command on one real server.
func (w *World) On(server *testredis.Server, args ...string) any {
	w.Helper()
	reply, err := server.Command(args...)
	require.NoError(w, err, "%q", args)
	return reply
}

// FlushAll empties the servers. Some time goes by before the next command: the server's clock is all that keeps tokens
// apart then.
func (w *World) FlushAll() {
	w.Helper()
	if w.Mini != nil {
		w.Mini.FlushAll()
		w.Pass(time.Millisecond)
		return
	}
	for _, master := range w.Deployment().Masters() {
		w.On(master, "FLUSHALL")
	}
}

// Wipe has a master in fake time crash and come back without its data.
func (w *World) Wipe(master int) {
	w.Minis[master].Crash()
	w.Minis[master].Recover()
}

// FlushScripts makes the first master forget all scripts.
func (w *World) FlushScripts() {
	if w.Mini != nil {
		w.Mini.FlushScripts()
		return
	}
	w.On(w.Server, "SCRIPT", "FLUSH")
}

// Keys returns the names of all keys on the first master, in a Cluster on all of them, sorted.
func (w *World) Keys() []string {
	w.Helper()
	if w.Mini != nil {
		return w.Mini.Miniredis().Keys()
	}
	var all []string
	for _, master := range w.Deployment().Masters() {
		for _, key := range w.On(master, "KEYS", "*").([]any) {
			all = append(all, key.(string))
		}
	}
	slices.Sort(all)
	return all
}

// Marker is the key with which a master says how it is used. It stays.
const Marker = "fencelock:master"

// IsMarker reports whether a key is a marker, of any prefix.
func IsMarker(key string) bool { return strings.HasSuffix(key, ":master") }

// LockKeys returns Keys without the marker.
func (w *World) LockKeys() []string { return slices.DeleteFunc(w.Keys(), IsMarker) }

// Pass lets time go by: fake time only, since on a real server nothing is exact.
func (w *World) Pass(d time.Duration) {
	w.Helper()
	require.NotNil(w, w.Mini, "Pass is for fake time")
	time.Sleep(d)
	w.Settle()
}

// Settle returns when every goroutine of the bubble waits for time to go by; on a real server, at once.
func (w *World) Settle() {
	if w.Mini != nil {
		synctest.Wait()
	}
}

// Eventually returns when the condition holds. In fake time it is looked at after every millisecond, and at once if all
// is settled.
func (w *World) Eventually(what string, holds func() bool) {
	w.Helper()
	limit := time.Now().Add(Patience)
	for w.Settle(); !holds(); w.Settle() {
		if time.Now().After(limit) {
			w.Fatalf("it never came about that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// UntilClosed returns when the channel is closed.
func (w *World) UntilClosed(done <-chan struct{}) {
	w.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		w.Fatal("the end never came")
	}
}

// UntilOver returns when the lease has ended.
func (w *World) UntilOver(lease *rwlock.Lease) {
	w.Helper()
	w.UntilClosed(lease.Done())
}

// At runs both, each after its time from now.
func (w *World) At(t1 time.Duration, f1 func(), t2 time.Duration, f2 func()) {
	if t2 < t1 {
		t1, f1, t2, f2 = t2, f2, t1, f1
	}
	w.Pass(t1)
	f1()
	w.Pass(t2 - t1)
	f2()
}

// Soon is a context for what must not take longer than d, which is exact in fake time.
func (w *World) Soon(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(w.Ctx, d)
	w.Cleanup(cancel)
	return ctx
}

// RequireLess checks a time in fake time only: a busy machine adds to what a real server and its clients need.
func (w *World) RequireLess(took, limit time.Duration, because string) {
	w.Helper()
	if w.Mini != nil {
		require.Less(w, took, limit, because)
	}
}

// Claim is how long a waiter's lease lasts for the world's TTL, and a hand-off that is not confirmed.
func (w *World) Claim() time.Duration { return min(w.TTL, 3*time.Second) }

// Refresh is the pause between two refreshes of waiters.
func (w *World) Refresh() time.Duration { return w.Claim() / 3 }

// Observer is a process that inspects and takes no locks.
func (w *World) Observer() *Process {
	if w.observer == nil {
		w.observer = w.Process()
	}
	return w.observer
}

// Inspect returns how the lock stands.
func (w *World) Inspect(name string) rwlock.State {
	w.Helper()
	s, err := w.Observer().Inspect(w.Ctx, name)
	require.NoError(w, err)
	return s
}

// UntilWaiting returns when n acquisitions are queued.
func (w *World) UntilWaiting(name string, n int) {
	w.Helper()
	w.Eventually(fmt.Sprintf("%d wait for %q", n, name), func() bool { return len(w.Inspect(name).Waiters) == n })
}

// Loss returns the error of a lost lease.
func (w *World) Loss(err error) *rwlock.LostError {
	w.Helper()
	require.ErrorIs(w, err, rwlock.ErrLost)
	loss, ok := errors.AsType[*rwlock.LostError](err)
	require.True(w, ok)
	return loss
}

// Release gives the leases back, and fails the test if that fails.
func (w *World) Release(leases ...*rwlock.Lease) {
	w.Helper()
	for _, lease := range leases {
		require.NoError(w, lease.Release(w.Ctx))
	}
	w.Settle()
}

// ResetCalls forgets the commands that the masters in fake time have counted.
func (w *World) ResetCalls() {
	for _, m := range w.Minis {
		m.ResetCalls()
	}
}

// ScriptCalls returns how many scripts have reached each master in fake time.
func (w *World) ScriptCalls() (counts []int) {
	for _, m := range w.Minis {
		counts = append(counts, m.Calls("EVALSHA")+m.Calls("EVAL"))
	}
	return counts
}

// HasOnlyTokens reports whether the first master has nothing of any lock but its token.
func (w *World) HasOnlyTokens() bool {
	for _, key := range w.LockKeys() {
		// What has expired stays until the lock is used again.
		if name, is := strings.CutSuffix(key, "}:x"); is {
			if w.Command("ZCOUNT", key, strconv.FormatInt(time.Now().UnixMilli(), 10), "+inf") != int64(0) {
				return false
			}
			name = nameDecoder.Replace(name[strings.IndexByte(name, '{')+1:])
			if w.observer == nil || w.observer.TryOnce(name) != nil {
				return false
			}
		}
	}
	for _, key := range w.LockKeys() {
		if !strings.HasSuffix(key, "}") || len(w.fieldsInUse(key)) > 0 {
			return false
		}
	}
	return true
}

// fieldsInUse returns the fields of a lock with their values, but for those of its tokens, which stay.
func (w *World) fieldsInUse(key string) (fields []string) {
	w.Helper()
	for _, field := range w.Command("HKEYS", key).([]any) {
		switch value := w.Command("HGET", key, field.(string)).(string); {
		case slices.Contains([]any{"b", "f", "m", "s", "c"}, field): // c goes with the next that is not straight
		case field == "w" && len(value) != 64, field == "d" && value == "": // no write hold
		default:
			fields = append(fields, fmt.Sprint(field, " ", value))
		}
	}
	return fields
}

// UntilOnlyTokens returns when the last tombstone has expired, which in fake time may take a minute.
func (w *World) UntilOnlyTokens() {
	w.Helper()
	if w.Mini == nil {
		w.Eventually("only tokens are left", w.HasOnlyTokens)
		return
	}
	for limit := time.Now().Add(2 * Patience); !w.HasOnlyTokens(); w.Pass(time.Second) {
		require.True(w, time.Now().Before(limit), "keys left: %q", w.Keys())
	}
}

// OnlyTombstonesLeft fails the test if anything of a lock but its token and tombstones is on the server, or if a
// tombstone ends later than within that time.
func (w *World) OnlyTombstonesLeft(within time.Duration) {
	w.Helper()
	w.Settle()
	end := strconv.FormatInt(time.Now().Add(within).UnixMilli()+1, 10)
	for _, key := range w.LockKeys() {
		if strings.HasSuffix(key, "}:x") {
			require.Zero(w, w.Command("ZCOUNT", key, end, "+inf"), key)
			continue
		}
		require.True(w, strings.HasSuffix(key, "}"), key)
		for _, field := range w.fieldsInUse(key) {
			require.Regexp(w, `^(n 0 0 |\S+ x )`, field, key) // no holds and no waiters
		}
	}
}

// OnlyTokensLeft fails the test if anything of a lock but its token is on the server.
func (w *World) OnlyTokensLeft() {
	w.Helper()
	w.Settle()
	require.True(w, w.HasOnlyTokens(), "keys left: %q", w.Keys())
}

// Call starts a call, such as RWMutex.Lock. In fake time it then waits or is over, so that the next one comes after it.
func (w *World) Call(ctx context.Context, f func(context.Context) error) *Call {
	c := &Call{w: w, Over: make(chan struct{})}
	go c.run(func() error { return f(ctx) })
	w.Settle()
	return c
}

// First returns the acquisition that is over first.
func (w *World) First(a, b *Pending) *Pending {
	w.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case <-a.Over:
		return a
	case <-b.Over:
		return b
	case <-limit.C:
		w.Fatal("neither acquisition ended")
		return nil
	}
}

// ScriptOf returns which script a command runs, or "" for none. It learns the digests of salted scripts from the
// commands that send them whole.
func (w *World) ScriptOf(cmd []string) scripts.Name {
	if name := ScriptOf(cmd); name != "" || len(cmd) < 2 {
		return name
	}
	s := w.scripts
	s.mu.Lock()
	defer s.mu.Unlock()
	if testredis.Named("EVAL")(cmd) {
		for name, source := range scripts.All() {
			if strings.HasPrefix(cmd[1], source) {
				s.digests[digest(cmd[1])] = name
				return name
			}
		}
	}
	return s.digests[cmd[1]]
}

// Running matches the commands that run one of these scripts.
func (w *World) Running(names ...scripts.Name) func(cmd []string) bool {
	return func(cmd []string) bool { return isOneOf(w.ScriptOf(cmd), names) }
}

// Requests notes what reaches the first master from now on, over the links that these processes have to it, or over all
// that it has now.
func (w *World) Requests(from ...*Process) *Requests {
	r := &Requests{w: w}
	var links []*testredis.Link
	for _, p := range from {
		links = append(links, p.Link)
	}
	if len(from) == 0 {
		links = w.Mini.Links()
	}
	for _, link := range links {
		link.OnCommand(func(cmd []string) {
			if name := w.ScriptOf(cmd); name != "" {
				r.notes.Add(Request{name, cmd, time.Now()})
			}
		})
	}
	return r
}

var nameDecoder = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// As returns the error of that type that err has.
func As[E error](t testing.TB, err error, because ...any) E {
	t.Helper()
	found, ok := errors.AsType[E](err)
	if !ok {
		require.Fail(t, fmt.Sprintf("%v has no %T", err, found), because...)
	}
	return found
}

// CounterIn returns field w of a lock with another counter. before is the field as it is, "" for a lock that is free.
func CounterIn(before, counter string) string {
	const digits = 16
	counter = strings.Repeat("0", max(digits-len(counter), 0)) + counter
	if len(before) < digits {
		return counter + "00000000"
	}
	return counter + before[digits:]
}

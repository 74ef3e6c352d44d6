package rwlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-rwlock")
	testredis.Together()
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}

type (
	world   = testkit.World
	process = testkit.Process
	pending = testkit.Pending
)

// inFakeTime runs a test on miniredis in a bubble.
func inFakeTime(t *testing.T, test func(w *world)) {
	t.Helper()
	testkit.InFakeTime(t, 1, observed(test))
}

// eachInFakeTime runs a test for each case, by its name, in a bubble of its own.
func eachInFakeTime[C any](t *testing.T, cases map[string]C, test func(w *world, c C)) {
	t.Helper()
	testkit.Each(t, cases, func(t *testing.T, c C) { inFakeTime(t, func(w *world) { test(w, c) }) })
}

// subtestInFakeTime runs a test as a subtest, in a bubble of its own.
func subtestInFakeTime(t *testing.T, name string, test func(w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inFakeTime(t, test) })
}

// observed has the world's observer start before the test.
func observed(test func(w *world)) func(w *world) {
	return func(w *world) {
		w.Observer()
		test(w)
	}
}

// onServer runs a test on a real server, which is emptied first.
func onServer(t *testing.T, server *testredis.Server, test func(w *world)) {
	t.Helper()
	w := testkit.OnServers(t, server)
	w.FlushAll()
	observed(test)(w)
}

// onGroup runs a test on several real servers, which are emptied first.
func onGroup(t *testing.T, group testredis.Deployment, test func(w *world), opts ...rwlock.Option) {
	t.Helper()
	w := testkit.OnGroup(t, group)
	w.Opts = opts
	w.FlushAll()
	observed(test)(w)
}

// everywhere runs a test in every place. On a real server most of the time is waiting, so they run in parallel.
func everywhere(t *testing.T, test func(w *world)) {
	t.Parallel()
	for _, p := range testkit.Places(t) {
		t.Run(p.Name, func(t *testing.T) { p.Enter(t, observed(test)) })
	}
}

// ending notes when a lease ends.
type ending struct{ testkit.Notes[time.Time] }

// watch notes the moment at which the lease's context ends, which is what work under the lock sees.
func watch(lease *rwlock.Lease) *ending {
	e := new(ending)
	context.AfterFunc(lease.Context(context.Background()), func() { e.Add(time.Now()) })
	return e
}

// before reports whether the lease had ended before that moment.
func (e *ending) before(t time.Time) bool {
	ended := e.All()
	return len(ended) > 0 && ended[0].Before(t)
}

// lockerOf is a locker whose Close has to succeed.
func lockerOf(t testing.TB, client rueidis.Client, opts ...rwlock.Option) *rwlock.Locker {
	t.Helper()
	locker := testkit.New(t, client, append(opts, testredis.Patience())...)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	return locker
}

// ended is a context that is over.
func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// inTurn takes a lock in a goroutine and gives it back. The channel has how that ended.
func inTurn(ctx context.Context, take take, name string) <-chan error {
	over := make(chan error, 1)
	go func() { over <- giveBack(take(ctx, name)) }()
	return over
}

// untilWaiting returns when an acquisition of the locker waits.
func untilWaiting(t *testing.T, locker *rwlock.Locker) {
	t.Helper()
	require.Eventually(t, func() bool { return locker.Stats().Waiting == 1 }, testkit.Patience, time.Millisecond)
}

// withOne gives a test a process.
func withOne(test func(w *world, p *process)) func(w *world) {
	return func(w *world) { test(w, w.Process()) }
}

// withTwo gives a test two processes.
func withTwo(test func(w *world, p, q *process)) func(w *world) {
	return func(w *world) { test(w, w.Process(), w.Process()) }
}

// withLease gives a test a process that holds "n" for writing.
func withLease(test func(w *world, p *process, lease *rwlock.Lease)) func(w *world) {
	return withOne(func(w *world, p *process) { test(w, p, p.Take("n", rwlock.Write)) })
}

// withMutex gives a test a process with an RWMutex of "n".
func withMutex(test func(w *world, p *process, mu *rwlock.RWMutex)) func(w *world) {
	return withOne(func(w *world, p *process) { test(w, p, p.RWMutex("n")) })
}

// withTrace gives a test a process and the events that it reports.
func withTrace(test func(w *world, p *process, d *testkit.Trace)) func(w *world) {
	return func(w *world) {
		d := new(testkit.Trace)
		test(w, w.Process(d.Option()), d)
	}
}

// succeed makes the calls one after the other.
func succeed(w *world, calls ...func(context.Context) error) {
	w.Helper()
	for i, call := range calls {
		require.NoError(w, call(w.Ctx), "call %d", i)
	}
}

// allFail makes the calls one after the other, each of which fails for that reason.
func allFail(w *world, want error, calls ...func(context.Context) error) {
	w.Helper()
	for i, call := range calls {
		require.ErrorIs(w, call(w.Ctx), want, "call %d", i)
	}
}

// numbered are so many names.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// takeEach takes the locks for writing.
func takeEach(p *process, names []string, opts ...rwlock.LockOption) (leases []*rwlock.Lease) {
	p.W.Helper()
	for _, name := range names {
		leases = append(leases, p.Take(name, rwlock.Write, opts...))
	}
	return leases
}

// answering has a link answer those commands with this error.
func answering(text string, when func(cmd []string) bool) func(cmd []string) string {
	return func(cmd []string) string {
		if when(cmd) {
			return text
		}
		return ""
	}
}

// fenceOf is the fence of that lock in a context.
func fenceOf(w *world, ctx context.Context, name string) fencing.Fence {
	w.Helper()
	fence, ok := fencing.FromContext(ctx, name)
	require.True(w, ok)
	return fence
}

package rwlock_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// suite is what every lock must do, on every server alike.
var suite = []struct {
	name string
	test func(w *world)
}{
	{"a free lock is taken and given back", freeLock},
	{"what is held decides who gets in", compatibility},
	{"a waiting writer holds new readers back", writerHoldsReadersBack},
	{"a refused try names the holder and queues nothing", refusedTry},
	{"waiters enter in the order of their arrival", arrivalOrder},
	{"readers between two writers enter together", readersTogether},
	{"the end of ctx ends the waiting", contextEndsWaiting},
	{"a ctx that has ended sends nothing", endedContext},
	{"WithMaxWait ends the waiting", maxWait},
	{"WithMaxHold ends the lease", maxHold},
	{"WithoutRenewal ends the lease after its TTL", withoutRenewal},
	{"an acquisition follows the release in the background before it", followsInTheBackground},
	{"a lease is renewed over several TTLs", renewedForLong},
	{"Renew moves the deadline", renewedByHand},
	{"a lease that the server lost is lost", lostOnServer},
	{"any name works and none collides", anyName},
	{"a name that breaks the rules is refused", refusedName},
	{"prefixes keep lockers apart", prefixes},
	{"Do runs under the lock and gives it back", doRuns},
	{"Do gives the lock back after a panic", doPanics},
	{"Do reports the loss of its lease", doLoses},
	{"the context of a lease ends with it", leaseContext},
	{"RWMutex excludes goroutines and processes", mutexExcludes},
	{"RWMutex unlocks what it holds and nothing else", mutexUnlocks},
	{"several locks are taken together", severalTogether},
	{"several readers share several locks", severalReaders},
	{"several locks have modes of their own", testkit.MixedModes},
	{"Inspect shows holders and waiters", inspectShows},
	{"List shows what is held and waited for", listShows},
	{"Break ends a lease", breakEndsALease},
	{"Break ends a wait", breakEndsAWait},
	{"BreakNow frees a lock at once", breakNowFreesAtOnce},
	{"Stats counts", statsCount},
	{"Close fails waiters and releases leases", closeEndsAll},
	{"Trace is told of a lease's life", traceTells},
	{"the logger hears of losses and of nothing else", loggerHears},
}

func TestSuite(t *testing.T) {
	t.Parallel() // on real servers most of the time is waiting
	for _, p := range testkit.Places(t) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for _, c := range suite {
				t.Run(c.name, func(t *testing.T) { t.Parallel(); p.Enter(t, observed(c.test)) })
			}
		})
	}
}

// The same suite, with every script run twice for each request of every process: nobody can tell the difference.
func TestSuiteWithEveryRequestTwice(t *testing.T) {
	testredis.NeedAll(t, "the model of the scripts shows it of each of them")
	for _, c := range suite {
		subtestInFakeTime(t, c.name, func(w *world) { w.Twice = true; c.test(w) })
	}
}

// deployments are where the suite runs beside fake time and single servers, on Redis and on Valkey.
var deployments = []struct {
	name  string
	start func(t *testing.T, binary string) testredis.Deployment
	opts  []rwlock.Option
}{
	{"Sentinel", startSentinel, nil},
	{"Cluster", startCluster, nil},
	{"TLS and the documented user", startLockedDown, nil},
	{"Sentinel, with a replica", startSentinel, []rwlock.Option{withAReplica}},
	{"Cluster, with a replica", startCluster, []rwlock.Option{withAReplica}},
}

var withAReplica = rwlock.WithReplicas(1, replicaTimeout)

func startSentinel(t *testing.T, binary string) testredis.Deployment {
	return testredis.StartSentinel(t, binary)
}

func startCluster(t *testing.T, binary string) testredis.Deployment {
	return testredis.StartCluster(t, binary, 1)
}

func TestSuiteInEveryDeployment(t *testing.T) {
	testredis.NeedAll(t, "what differs between deployments has tests of its own")
	t.Parallel() // most of the time is waiting
	for kind, find := range map[string]func(testing.TB) string{"Redis": redisBinary, "Valkey": testredis.Valkey} {
		for _, d := range deployments {
			t.Run(kind+", "+d.name, func(t *testing.T) {
				t.Parallel()
				deployment := d.start(t, find(t))
				for _, c := range suite {
					t.Run(c.name, func(t *testing.T) { onGroup(t, deployment, c.test, d.opts...) })
				}
			})
		}
	}
}

// lockedDown is a server over TLS with the user of SECURITY.md.
type lockedDown struct{ *testredis.TLS }

func startLockedDown(t *testing.T, binary string) testredis.Deployment {
	s := lockedDown{testredis.StartTLS(t, binary)}
	for _, line := range [][]string{
		aclLine(t, aclOne), {"ACL", "SETUSER", "locks", "~team:blue:*", "&team:blue:c:*"}, // the suite's other prefix
		{"ACL", "SETUSER", "locks", "+scan"}, // List is for operators
	} {
		require.NoError(t, expect.ErrorOf(s.Command(line...)))
	}
	t.Cleanup(func() { require.Empty(t, expect.NoError(s.Command("ACL", "LOG")).In(t), "refused commands") })
	return s
}

func (s lockedDown) Option() rueidis.ClientOption {
	option := s.TLS.Option()
	option.Username, option.Password = "locks", "secret"
	return option
}

var bothModes = []rwlock.Mode{rwlock.Read, rwlock.Write}

func freeLock(w *world) {
	p := w.Process()
	var last fencing.Token
	for range 3 {
		for _, mode := range bothModes {
			waited := p.Take("n", mode)
			require.Equal(w, "n", waited.Name())
			require.Equal(w, mode, waited.Mode())
			require.Len(w, waited.Owner(), 26)
			require.NoError(w, waited.Err())
			require.Greater(w, waited.Token(), last)
			w.Release(waited)
			require.ErrorIs(w, waited.Err(), rwlock.ErrReleased)
			require.NoError(w, waited.Release(w.Ctx), "a second Release")

			tried := expect.NoError(p.Try("n", mode)).In(w)
			require.Greater(w, tried.Token(), waited.Token())
			require.Equal(w, fencing.Fence{Resource: "n", Token: tried.Token(), Mode: mode}, tried.Fence())
			last = tried.Token()
			w.Release(tried)
		}
	}
	require.NoError(w, (*rwlock.Lease)(nil).Release(w.Ctx))
	w.OnlyTokensLeft()
}

func compatibility(w *world) {
	holder, other := w.Process(), w.Process()
	for _, c := range []struct {
		held, wanted rwlock.Mode
		together     bool
	}{
		{rwlock.Read, rwlock.Read, true},
		{rwlock.Read, rwlock.Write, false},
		{rwlock.Write, rwlock.Read, false},
		{rwlock.Write, rwlock.Write, false},
	} {
		for _, contender := range []*process{holder, other} {
			first := holder.Take("n", c.held)
			tried, err := contender.Try("n", c.wanted)
			if c.together {
				require.NoError(w, err)
				require.Greater(w, tried.Token(), first.Token())
				w.Release(tried)
				w.Release(contender.Take("n", c.wanted))
			} else {
				require.ErrorIs(w, err, rwlock.ErrNotAcquired)
				waiting := contender.Queue("n", c.wanted)
				require.True(w, waiting.IsWaiting())
				require.NoError(w, first.Err())
				w.Release(waiting.GrantedAfter(first))
			}
			w.Release(first)
		}
	}
	w.OnlyTokensLeft()
}

func writerHoldsReadersBack(w *world) {
	p, q := w.Process(), w.Process()
	reader := p.Take("n", rwlock.Read)
	writer := q.Queue("n", rwlock.Write)
	require.ErrorIs(w, expect.ErrorOf(p.TryRLock(w.Ctx, "n")), rwlock.ErrNotAcquired)
	late := p.Queue("n", rwlock.Read)
	w.Release(writer.GrantedAfter(reader))
	w.Release(late.Granted())
}

func refusedTry(w *world) {
	p, q := w.Process(), w.Process()
	held := p.Take("n", rwlock.Write, rwlock.WithMeta("host 7: importer"))
	for _, mode := range bothModes {
		_, err := q.Try("n", mode)
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.False(w, rwlock.Indeterminate(err))
		e := testkit.As[*rwlock.AcquireError](w, err)
		require.Equal(w, "n", e.Name)
		require.Equal(w, mode, e.Mode)
		require.Equal(w, 1, e.Attempts)
		require.NoError(w, e.Err)
		require.NotNil(w, e.Holder)
		require.Equal(w, held.Owner(), e.Holder.Owner)
		require.Equal(w, "host 7: importer", e.Holder.Meta)
		require.Equal(w, rwlock.Write, e.Holder.Mode)
		require.Positive(w, e.Holder.Remaining)
		require.Contains(w, err.Error(), held.Owner())
	}
	require.Empty(w, w.Inspect("n").Waiters)
	w.Release(held)
	w.OnlyTokensLeft()
}

func arrivalOrder(w *world) {
	processes := []*process{w.Process(), w.Process(), w.Process()}
	held := processes[0].Take("n", rwlock.Write)
	var queue []*pending
	for i := range 9 {
		queue = append(queue, processes[i%3].Queue("n", bothModes[(i+1)%2]))
	}
	for i, next := range queue { // writers and readers take turns, so each is alone
		for _, later := range queue[i:] {
			require.True(w, later.IsWaiting())
		}
		lease := next.GrantedAfter(held)
		require.Greater(w, lease.Token(), held.Token())
		held = lease
	}
	w.Release(held)
	w.OnlyTokensLeft()
}

func readersTogether(w *world) {
	p, q := w.Process(), w.Process()
	first := p.Take("n", rwlock.Write)
	early := []*pending{p.Queue("n", rwlock.Read), q.Queue("n", rwlock.Read), q.Queue("n", rwlock.Read)}
	writer := q.Queue("n", rwlock.Write)
	late := []*pending{p.Queue("n", rwlock.Read), q.Queue("n", rwlock.Read)}

	w.Release(first)
	var readers []*rwlock.Lease
	for _, a := range early {
		readers = append(readers, a.Granted())
	}
	require.Len(w, w.Inspect("n").Holders, len(early), "all at once")
	for _, reader := range readers {
		require.True(w, writer.IsWaiting())
		w.Release(reader)
	}
	second := writer.Granted()
	for _, a := range late {
		require.True(w, a.IsWaiting())
	}
	w.Release(second)
	w.Release(late[0].Granted(), late[1].Granted())
	w.OnlyTokensLeft()
}

func contextEndsWaiting(w *world) {
	reason := errors.New("the shop has closed")
	p, q := w.Process(), w.Process()
	held := p.Take("n", rwlock.Read)
	ctx, cancel := context.WithCancelCause(w.Ctx)
	defer cancel(nil)
	leaves := q.Acquire(ctx, "n", rwlock.Write)
	w.UntilWaiting("n", 1)
	behind := q.Queue("n", rwlock.Read)
	w.Eventually("both know that they wait", func() bool { return q.Stats().Waiting == 2 })

	cancel(reason)
	err := leaves.Failed()
	expect.Fails(w, err, rwlock.ErrNotAcquired, context.Canceled, reason, reason.Error())
	require.NotErrorIs(w, err, rwlock.ErrNoQuorum)
	e := testkit.As[*rwlock.AcquireError](w, err)
	require.NotNil(w, e.Holder)
	require.Equal(w, held.Owner(), e.Holder.Owner)

	w.Release(behind.Granted()) // it waited for the writer only
	w.Release(held)
	w.Eventually("the queue is gone", func() bool { return len(w.Inspect("n").Waiters) == 0 })
	w.OnlyTokensLeft()
}

func endedContext(w *world) {
	p := w.Process()
	for _, mode := range bothModes {
		err := p.Acquire(ended(w.Ctx), "n", mode).Failed()
		expect.Fails(w, err, context.Canceled, rwlock.ErrNotAcquired)
		require.False(w, rwlock.Indeterminate(err))
	}
	require.Zero(w, p.Link.Calls("EVALSHA")+p.Link.Calls("EVAL"))
	require.Empty(w, w.Keys())
}

func maxWait(w *world) {
	limit := w.TTL * 2 / 5
	p, q := w.Process(), w.Process()
	held := p.Take("n", rwlock.Write)
	start := time.Now()
	a := q.Acquire(w.Ctx, "n", rwlock.Write, rwlock.WithMaxWait(limit))
	err := a.Failed()
	expect.Fails(w, err, rwlock.ErrNotAcquired, "WithMaxWait", limit.String())
	require.GreaterOrEqual(w, testkit.As[*rwlock.AcquireError](w, err).Waited, limit)
	if w.Mini != nil {
		require.Equal(w, limit, a.At.Sub(start))
	}
	w.UntilWaiting("n", 0)
	require.NoError(w, held.Err())
	w.Release(held)

	w.Release(q.Take("n", rwlock.Write, rwlock.WithMaxWait(w.TTL)))
	w.OnlyTokensLeft()
}

// readersShown returns what the holders in s said of themselves, by owner, and fails the test if they are no readers.
func readersShown(w *world, s rwlock.State) map[string]string {
	shown := map[string]string{}
	for _, h := range s.Holders {
		shown[h.Owner] = h.Meta
		require.Equal(w, rwlock.Read, h.Mode)
		require.Equal(w, 1, h.Count)
		require.LessOrEqual(w, h.Remaining, w.TTL)
		require.Greater(w, h.Remaining, w.TTL/3)
		require.GreaterOrEqual(w, h.Held, time.Duration(0))
	}
	return shown
}

func inspectShows(w *world) {
	p, q := w.Process(), w.Process()
	require.Equal(w, rwlock.State{Name: "n"}, withoutMasters(w.Inspect("n")))

	first := p.Take("n", rwlock.Read, rwlock.WithMeta("one"))
	second := q.Take("n", rwlock.Read, rwlock.WithMeta("two words"))
	third := q.Queue("n", rwlock.Write, rwlock.WithMeta(""))
	fourth := p.Queue("n", rwlock.Read, rwlock.WithMeta("four"))

	before := w.Keys()
	s := w.Inspect("n")
	require.Equal(w, before, w.Keys())
	require.Equal(w, "n", s.Name)
	require.Equal(w, rwlock.Read, s.Mode)
	require.Equal(w, second.Token(), s.Token)
	require.Equal(w, map[string]string{first.Owner(): "one", second.Owner(): "two words"}, readersShown(w, s))
	require.Len(w, s.Waiters, 2)
	for i, waiter := range s.Waiters {
		require.Equal(w, []rwlock.Mode{rwlock.Write, rwlock.Read}[i], waiter.Mode)
		require.Equal(w, []string{"", "four"}[i], waiter.Meta)
		require.Len(w, waiter.Hold, 26)
	}
	require.Len(w, s.Masters, 1)
	require.NoError(w, s.Masters[0].Err)
	require.Equal(w, s.Holders, s.Masters[0].Holders)
	require.Equal(w, s.Waiters, s.Masters[0].Waiters)
	require.NotEmpty(w, s.Masters[0].Addr)

	w.Release(first, second)
	writer := third.Granted()
	require.Equal(w, s.Waiters[0].Owner, writer.Owner())
	s = w.Inspect("n")
	require.Equal(w, rwlock.Write, s.Mode)
	require.Equal(w, writer.Token(), s.Token)
	last := fourth.GrantedAfter(writer)
	w.Release(last)
	require.Equal(w, rwlock.State{Name: "n", Token: last.Token()}, withoutMasters(w.Inspect("n")))
}

func withoutMasters(s rwlock.State) rwlock.State {
	s.Masters = nil
	return s
}

func statsCount(w *world) {
	p, q := w.Process(), w.Process()
	require.Equal(w, rwlock.Stats{}, p.Stats())
	a, b := p.Take("a", rwlock.Write), p.Take("b", rwlock.Read)
	require.Equal(w, rwlock.Stats{Held: 2, Acquired: 2}, p.Stats())

	waiting := q.Queue("a", rwlock.Write)
	w.Eventually("the waiter is counted", func() bool { return q.Stats() == rwlock.Stats{Waiting: 1} })
	handed := waiting.GrantedAfter(a)
	s := q.Stats()
	s.Renewed = 0 // the hand-off is confirmed by a renewal soon
	if w.Group != nil {
		s.HandedOff = 1 // subscribing takes longer there: the first waiter may learn of it by asking
	}
	require.Equal(w, rwlock.Stats{Held: 1, Acquired: 1, Contended: 1, HandedOff: 1}, s)

	require.NoError(w, b.Renew(w.Ctx))
	if renewed := p.Stats().Renewed; w.Mini != nil {
		require.EqualValues(w, 1, renewed)
	} else {
		require.Positive(w, renewed) // a third of the TTL may have gone by
	}
	require.ErrorIs(w, expect.ErrorOf(p.TryLock(w.Ctx, "a")), rwlock.ErrNotAcquired)
	w.FlushAll()
	w.UntilOver(b)
	w.UntilOver(handed)
	s = p.Stats()
	require.Equal(w, rwlock.Stats{
		Acquired: 2, Failed: rwlock.FailedStats{Contended: 1}, Lost: rwlock.LostStats{Gone: 1}, Renewed: s.Renewed,
	}, s)
	require.EqualValues(w, 1, q.Stats().Lost.Total())
	require.Zero(w, q.Stats().Held)
}

func closeEndsAll(w *world) {
	p, q := w.Process(), w.Process()
	held := []*rwlock.Lease{p.Take("a", rwlock.Write), p.Take("b", rwlock.Read), p.Take("b", rwlock.Read)}
	other := q.Take("c", rwlock.Write)
	waiting := []*pending{p.Queue("c", rwlock.Write), p.Queue("c", rwlock.Read)}
	next := q.Queue("a", rwlock.Write)

	require.NoError(w, p.Close())
	for _, a := range waiting {
		require.ErrorIs(w, a.Failed(), rwlock.ErrClosed)
	}
	for _, lease := range held {
		require.ErrorIs(w, lease.Err(), rwlock.ErrReleased)
		w.Release(lease)
	}
	require.Empty(w, w.Inspect("b").Holders, "Close waits for the releases")
	require.Empty(w, w.Inspect("c").Waiters)
	w.Release(next.Granted(), other)
	for _, mode := range bothModes {
		require.ErrorIs(w, p.Acquire(w.Ctx, "a", mode).Failed(), rwlock.ErrClosed)
		require.ErrorIs(w, expect.ErrorOf(p.Try("a", mode)), rwlock.ErrClosed)
	}
	require.NoError(w, p.Close(), "again")
	require.Zero(w, p.Stats().Held+p.Stats().Waiting)
	w.OnlyTokensLeft()
}

// reported are the kinds of the events and their locks.
func reported(t *testkit.Trace) (all []string) {
	for _, e := range t.Events() {
		all = append(all, e.What+" "+e.Name)
	}
	return all
}

func traceTells(w *world) {
	var d testkit.Trace
	has := func(event string) func() bool { return func() bool { return slices.Contains(reported(&d), event) } }
	p := w.Process(d.Option())
	q := w.Process(rwlock.WithTrace(&rwlock.Trace{})) // every function may be nil
	held := q.Take("a", rwlock.Write)
	lease := p.Queue("a", rwlock.Read).GrantedAfter(held)
	require.NoError(w, lease.Renew(w.Ctx))
	w.Eventually("the renewal is told", has("renewed a"))
	w.Release(lease)
	w.Eventually("the release is told", has("released a"))
	require.Equal(w, []string{"waiting a", "acquired a", "renewed a", "released a"}, slices.Compact(reported(&d)))
	acquired := d.Last("acquired")
	require.Zero(w, d.Last("waiting").Token)
	require.Equal(w, rwlock.Read, acquired.Mode)
	require.Equal(w, lease.Owner(), acquired.Owner)
	require.Len(w, acquired.Hold, 26)
	require.Equal(w, lease.Token(), acquired.Token)
	require.Equal(w, acquired.Hold, d.Last("released").Hold)

	lost := p.Take("b", rwlock.Write)
	w.FlushAll()
	w.Eventually("the loss is told", has("lost b"))
	require.Equal(w, lost.Err(), error(d.Last("lost").Loss))
	require.Equal(w, lost.Token(), d.Last("lost").Token)
}

func loggerHears(w *world) {
	if w.Mini == nil {
		testredis.NeedAll(w, "a TTL is long there")
	}
	var book testkit.Log
	p, q := w.Process(book.Option()), w.Process()
	held := q.Take("quiet", rwlock.Write)
	lease := p.Queue("quiet", rwlock.Write).GrantedAfter(held)
	require.NoError(w, lease.Renew(w.Ctx))
	w.Release(lease)
	require.Empty(w, book.Records(""))

	lost := p.Take("gone", rwlock.Write)
	w.FlushAll()
	w.UntilOver(lost)
	w.Eventually("the loss is logged", func() bool { return len(book.About("gone")) > 0 })
	for i, r := range book.About("gone") { // where the machine was too busy for a renewal that comes first
		require.Equal(w, slog.LevelWarn, r.Level)
		require.True(w, i == 0 || w.Mini == nil, "told twice: %v", r)
	}

	cut := p.Take("cut", rwlock.Write)
	p.Die()
	w.UntilOver(cut)
	w.Eventually("failing renewals and the loss are logged", func() bool { return len(book.About("cut")) >= 2 })
	for _, r := range book.About("cut") {
		require.Equal(w, slog.LevelWarn, r.Level)
	}
	p.Restore(0) // Close gives back what is lost, too
}

func severalTogether(w *world) {
	var trace testkit.Trace
	p, q := w.Process(trace.Option()), w.Process()
	names := []string{"c", "a", "b"}
	all := expect.NoError(p.LockAll(w.Ctx, rwlock.Writes(names...))).In(w)
	ctx := all.Context(w.Ctx)
	for i, lease := range all.Leases() {
		require.Equal(w, names[i], lease.Name(), "the order of the caller")
		require.Equal(w, rwlock.Write, lease.Mode())
		require.Equal(w, lease.Fence(), fenceOf(w, ctx, names[i]))
		require.ErrorIs(w, expect.ErrorOf(q.TryLock(w.Ctx, names[i])), rwlock.ErrNotAcquired)
		require.ErrorIs(w, expect.ErrorOf(p.Lock(ctx, names[i])), rwlock.ErrNested)
	}
	require.NoError(w, all.Err())
	require.NoError(w, ctx.Err())

	require.NoError(w, all.Release(w.Ctx))
	require.ErrorIs(w, all.Err(), rwlock.ErrReleased)
	require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
	w.UntilClosed(all.Done())
	require.NoError(w, all.Release(w.Ctx), "nothing is left to release")
	for _, name := range names {
		require.True(w, isFree(w, name))
		w.Eventually("both events", func() bool { return len(trace.Events(name)) == 2 })
		require.Equal(w, "acquired", trace.Events(name)[0].What)
		require.Equal(w, "released", trace.Events(name)[1].What)
	}
	require.Equal(w, uint64(3), p.Stats().Acquired)
	require.Zero(w, p.Stats().Held)
}

func severalReaders(w *world) {
	p, q := w.Process(), w.Process()
	names := []string{"a", "b", "c"}
	first := expect.NoError(p.LockAll(w.Ctx, rwlock.Reads(names...))).In(w)
	second := expect.NoError(q.LockAll(w.Ctx, rwlock.Reads(names...))).In(w)
	third := expect.NoError(p.TryLockAll(w.Ctx, rwlock.Reads(names...))).In(w)
	c := takeAll(w.Process(), w.Ctx, rwlock.Writes(names...))
	w.UntilWaiting("a", 1)
	for _, all := range []*rwlock.MultiLease{first, second, third} {
		require.NoError(w, all.Err())
		require.NoError(w, all.Release(w.Ctx))
	}
	require.NoError(w, c.granted(w).Release(w.Ctx))
}

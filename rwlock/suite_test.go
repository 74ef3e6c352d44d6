package rwlock_test

import (
	"context"
	"errors"
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
			for _, c := range suite {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					p.Enter(t, observed(c.test))
				})
			}
		})
	}
}

// The same suite, with every script run twice for each request of every process: nobody can tell the difference.
func TestSuiteWithEveryRequestTwice(t *testing.T) {
	testredis.NeedAll(t, "the model of the scripts shows it of each of them")
	for _, c := range suite {
		subtestInFakeTime(t, c.name, func(w *world) {
			w.Twice = true
			c.test(w)
		})
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
		require.NoError(t, errorOf(s.Command(line...)))
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
	require.ErrorIs(w, errorOf(p.TryRLock(w.Ctx, "n")), rwlock.ErrNotAcquired)
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
	fails(w, err, rwlock.ErrNotAcquired, context.Canceled, reason, reason.Error())
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
		fails(w, err, context.Canceled, rwlock.ErrNotAcquired)
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
	fails(w, err, rwlock.ErrNotAcquired, "WithMaxWait", limit.String())
	require.GreaterOrEqual(w, testkit.As[*rwlock.AcquireError](w, err).Waited, limit)
	if w.Mini != nil {
		require.Equal(w, limit, a.At.Sub(start))
	}
	w.UntilWaiting("n", 0)
	require.NoError(w, held.Err())
	w.Release(held)

	quick := q.Take("n", rwlock.Write, rwlock.WithMaxWait(w.TTL))
	w.Release(quick)
	w.OnlyTokensLeft()
}

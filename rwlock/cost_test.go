package rwlock_test

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// sent returns the commands that have reached the server over the link since ResetCalls, without the PINGs by which
// rueidis keeps its connections alive whatever a locker does, and without the INFO by which a locker asks each server
// once whether it evicts keys, at any time after its first answer: the tests of eviction count that.
func sent(link *testredis.Link) map[string]int {
	calls := link.AllCalls()
	delete(calls, "PING")
	delete(calls, "INFO")
	return calls
}

// 64 acquisitions wait for one name in one process, and its server hears of them once a refresh interval.
func TestWaitingCostsOneRefresh(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const waiters, refreshes = 64, 6
		held := w.Process().Take("n", rwlock.Write)
		p := w.Process()
		var all []*pending
		for range waiters {
			all = append(all, p.LineUp("n", rwlock.Write, func(*rwlock.Lease) {}))
		}
		w.Pass(w.Claim()) // all are queued
		p.Link.ResetCalls()
		w.Pass(refreshes * w.Refresh())
		require.Equal(w, map[string]int{"EVALSHA": refreshes}, sent(p.Link), "nothing but the refresh")
		w.Release(held)
		for _, a := range all {
			a.Granted()
		}
	})
}

func TestUncontendedCostsTwoCommands(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		p.WarmUp()
		p.Link.ResetCalls()
		const rounds = 100
		for range rounds {
			for _, mode := range bothModes {
				w.Release(p.Take("n", mode))
			}
		}
		require.Equal(w, map[string]int{"EVALSHA": 2 * 2 * rounds}, sent(p.Link))
	}))
}

func TestUncontendedAllocations(t *testing.T) {
	if testkit.RaceDetector {
		t.Skip("the race detector allocates")
	}
	locker := testkit.Dial(t, testredis.Start(t).Addr(), rueidis.ClientOption{})
	ctx := t.Context()
	allocations := testing.AllocsPerRun(1000, func() {
		if err := giveBack(locker.Lock(ctx, "n")); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.0f allocations", allocations)
	require.LessOrEqual(t, allocations, 5.0)
}

// Callers of one moment share a call, and what that call needs: a pair costs them no more than it costs one caller.
func TestAllocationsOfManyCallers(t *testing.T) {
	if testkit.RaceDetector {
		t.Skip("the race detector allocates")
	}
	locker := testkit.Dial(t, testredis.Start(t).Addr(), rueidis.ClientOption{})
	const callers, rounds = 64, 200
	pairs := func() {
		var all sync.WaitGroup
		for _, name := range numbered("name-", callers) {
			all.Go(func() {
				for range rounds {
					if err := giveBack(locker.Lock(t.Context(), name)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	pairs() // what comes once
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	pairs()
	runtime.ReadMemStats(&after)
	allocations := float64(after.Mallocs-before.Mallocs) / (callers * rounds)
	bytes := float64(after.TotalAlloc-before.TotalAlloc) / (callers * rounds)
	t.Logf("%.1f allocations, %.0f bytes", allocations, bytes)
	require.LessOrEqual(t, allocations, 6.0)
	require.LessOrEqual(t, bytes, 1_000.0)
}

// A process may hold thousands of leases, so what each one keeps in memory is bounded.
func TestHeapOfALease(t *testing.T) {
	if testkit.RaceDetector {
		t.Skip("the race detector allocates")
	}
	const leases, most = 10_000, 500
	server := testredis.Start(t)
	locker := testkit.Dial(t, server.Addr(), rueidis.ClientOption{}, rwlock.WithTTL(time.Hour)) // no renewals
	names := numbered("name-", leases)
	held := make([]*rwlock.Lease, leases)
	require.NoError(t, locker.Do(t.Context(), "warm up", func(context.Context) error { return nil })) // what comes once
	before := liveHeap()
	for i, name := range names {
		held[i] = expect.NoError(locker.Lock(t.Context(), name)).In(t)
	}
	perLease := (liveHeap() - before) / leases
	t.Logf("%d bytes", perLease)
	require.LessOrEqual(t, perLease, int64(most))
	noneLost(t, locker, held)
}

// liveHeap is what is left of the heap after a collection, in bytes.
func liveHeap() int64 {
	for range 3 { // what pools keep goes in the second one, and what cleanups let go of in the third
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// holdMany takes n locks, for writing and for reading by turns.
func holdMany(t *testing.T, locker *rwlock.Locker, n int) []*rwlock.Lease {
	t.Helper()
	leases := make([]*rwlock.Lease, n)
	for i := range leases {
		take := locker.Lock
		if i%2 == 1 {
			take = locker.RLock
		}
		leases[i] = expect.NoError(take(t.Context(), strconv.Itoa(i))).In(t)
	}
	return leases
}

// noneLost checks that every lease still stands and that none was ever in danger.
func noneLost(t *testing.T, locker *rwlock.Locker, leases []*rwlock.Lease) {
	t.Helper()
	for _, lease := range leases {
		require.NoError(t, lease.Err())
	}
	stats := locker.Stats()
	require.Equal(t, len(leases), stats.Held)
	require.Zero(t, stats.Lost.Total())
}

// A renewal comes after a third of what is left of the lease, or up to 10 % earlier; what is left is less than the TTL
// by the drift of 1 %.
const fewest, most = 3 / 1.1, 3 / (0.9 * 0.99) * 1.01

// batched is how many leases a renewal carries at the least, where many are held.
const batched = 8

func TestEachLeaseIsRenewedThreeTimesInATTL(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const leases, ttls = 200, 10
		p := w.Process()
		p.WarmUp()
		goroutines := runtime.NumGoroutine()
		all := holdMany(w.T, p.Locker, leases)
		require.Less(w, runtime.NumGoroutine(), goroutines+leases/4, "none for each; others outside the test come and go")
		p.Link.ResetCalls()
		w.Pass(ttls * w.TTL)
		noneLost(w.T, p.Locker, all)
		require.Zero(w, p.Stats().RenewFailed)
		for command := range sent(p.Link) {
			require.Contains(w, []string{"EVALSHA", "EVAL"}, command)
		}
		perTTL := float64(p.Stats().Renewed) / leases / ttls
		require.GreaterOrEqual(w, perTTL, fewest)
		require.LessOrEqual(w, perTTL, most)
		require.LessOrEqual(w, uint64(p.Link.Calls("EVALSHA")), p.Stats().Renewed/batched, "many in one call")
	})
}

// While the process reads, another reader costs no command and no memory.
func TestReadingBesideReadersCostsNothing(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(rwlock.WithTTL(time.Hour))
		mu := p.RWMutex("n")
		hasWaited(p)
		require.NoError(w, mu.RLock(w.Ctx))
		commands := commandsAfterWaiting(p.Link)
		for range 1000 {
			succeed(w, p.RWMutex("n").RLock, mu.TryRLock, mu.RUnlock, mu.RUnlock)
		}
		require.Empty(w, commands())
		if !testkit.RaceDetector {
			require.Zero(w, testing.AllocsPerRun(1000, func() {
				if mu.RLock(w.Ctx) != nil || mu.RUnlock(w.Ctx) != nil {
					w.Fatal("not read")
				}
			}), "allocations")
		}
		require.NoError(w, mu.RUnlock(w.Ctx))
		w.OnlyTokensLeft()
	})
}

// waitedFor is the lock of hasWaited.
const waitedFor = "waited for"

// hasWaited has the process listen to messages from now on. Its waiter gives up.
func hasWaited(p *process) {
	p.W.Helper()
	other := p.W.Process()
	other.Take(waitedFor, rwlock.Write, rwlock.WithTTL(time.Hour))
	ctx, cancel := context.WithCancel(p.W.Ctx)
	waiting := p.Acquire(ctx, waitedFor, rwlock.Write)
	p.W.UntilWaiting(waitedFor, 1)
	p.W.Eventually("it listens", func() bool { return p.Link.Calls("SUBSCRIBE")+p.Link.Calls("SSUBSCRIBE") > 0 })
	cancel()
	require.ErrorIs(p.W, waiting.Result(), context.Canceled)
	require.NoError(p.W, other.Close())
	p.W.Settle()
}

// commandsAfterWaiting are the commands that reach the server over the link from now on, after hasWaited.
func commandsAfterWaiting(link *testredis.Link) func() []string {
	var commands testkit.Notes[string]
	link.OnCommand(func(cmd []string) {
		late := slices.ContainsFunc(cmd, func(arg string) bool { return strings.HasSuffix(arg, "{"+waitedFor+"}") })
		if !late && cmd[0] != "PING" && cmd[0] != "INFO" {
			commands.Add(cmd[0])
		}
	})
	return commands.All
}

// An RWMutex that is not held costs less than 1 KiB, nothing that runs, and nothing once nobody refers to it.
func TestIdleRWMutexesCostNothing(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		const n = 10_000
		relock(w, p.RWMutex("warm up"))
		w.Settle()
		before, goroutines := liveHeap(), runtime.NumGoroutine()
		all := make([]*rwlock.RWMutex, n)
		for i := range all {
			all[i] = p.RWMutex(strconv.Itoa(i))
			if i%100 == 0 {
				relock(w, all[i])
			}
		}
		w.Settle()
		p.Link.ResetCalls()
		require.Less(w, liveHeap()-before, int64(n*1024))
		require.Less(w, runtime.NumGoroutine(), goroutines+n/100, "goroutines outside the test come and go")
		w.Pass(time.Minute)
		require.Empty(w, sent(p.Link))
		runtime.KeepAlive(all)
	}))
}

// A locker keeps nothing of the names that it was asked for.
func TestForgottenRWMutexesAreFreed(t *testing.T) {
	locker := testkit.Dial(t, testredis.Start(t).Addr(), rueidis.ClientOption{})
	const n = 20_000
	before, tail := liveHeap(), strings.Repeat("x", 500) // a long name, since a map keeps its own size
	for i := range n {
		mu := locker.RWMutex(strconv.Itoa(i) + tail)
		if i%1000 == 0 {
			require.NoError(t, mu.RLock(t.Context()))
			require.NoError(t, mu.RUnlock(t.Context()))
		}
	}
	require.Eventually(t, func() bool { return liveHeap()-before < n*250 }, time.Minute, 10*time.Millisecond)
	runtime.KeepAlive(locker)
}

// One that is held is the same for everybody who asks for it, even if nobody remembers it.
func TestARWMutexThatIsHeldIsNotForgotten(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		for range 3 {
			require.NoError(w, p.RWMutex("n").Lock(w.Ctx))
			token := p.RWMutex("n").Token()
			liveHeap()
			require.NotZero(w, token)
			require.Equal(w, token, p.RWMutex("n").Token())
			require.ErrorIs(w, p.RWMutex("n").TryRLock(w.Ctx), rwlock.ErrNotAcquired)
			require.NoError(w, p.RWMutex("n").Unlock(w.Ctx))
		}
		w.OnlyTokensLeft()
	}))
}

// Goroutines that share a lease share its terms: RWMutexes of one name that are in use have the same options.
func TestRWMutexesInUseHaveTheSameOptions(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(rwlock.WithTTL(time.Second))
		mu := p.RWMutex("n", rwlock.WithMeta("a"))
		require.Same(w, mu, p.RWMutex("n", rwlock.WithTTL(time.Second), rwlock.WithMeta("a")))
		for _, c := range []struct {
			option      rwlock.LockOption
			name, value string
			rule        string
		}{
			{rwlock.WithTTL(2 * time.Second), "WithTTL", "2s", `must be 1s, as in the RWMutex "n"`},
			{rwlock.WithMaxWait(time.Second), "WithMaxWait", "1s", "must not be set, as in the RWMutex"},
			{rwlock.WithMaxHold(time.Second), "WithMaxHold", "1s", "must not be set, as in the RWMutex"},
			{rwlock.WithMeta("b"), "WithMeta", "b", "must be a"},
		} {
			other := p.RWMutex("n", rwlock.WithMeta("a"), c.option)
			require.NoError(w, other.Lock(w.Ctx), "no other is in use")
			succeed(w, other.Unlock, mu.RLock)
			for _, err := range []error{other.Lock(w.Ctx), other.TryLock(w.Ctx), other.RLock(w.Ctx), other.TryRLock(w.Ctx)} {
				refusedOption(w.T, err, c.name, c.value, c.rule)
			}
			require.ErrorIs(w, other.Unlock(w.Ctx), rwlock.ErrNotHeld)
			require.Zero(w, other.Token())
			require.NoError(w, p.RWMutex("m", c.option).TryLock(w.Ctx), "another name")
			require.NoError(w, p.RWMutex("m", c.option).Unlock(w.Ctx))
			require.NoError(w, mu.RUnlock(w.Ctx))
		}
	})
}

// One that is waited for is in use, and one whose waiters have all left is not.
func TestWaitersPutARWMutexInUse(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		w.Process().Take("n", rwlock.Write)
		waits := w.Call(w.Soon(time.Second), p.RWMutex("n").Lock)
		other := p.RWMutex("n", rwlock.WithTTL(time.Second))
		require.ErrorIs(w, other.TryLock(w.Ctx), rwlock.ErrOption)
		require.ErrorIs(w, waits.Result(), context.DeadlineExceeded)
		require.ErrorIs(w, other.TryLock(w.Ctx), rwlock.ErrNotAcquired)
	}))
}

// spareSections is how often a process hands the lock on while another waits, shortSections how often more if quick.
const spareSections, shortSections = 16, 112

// Sections that are shorter than a hand-off between processes are not cut off by one after so few.
func TestShortSectionsGoOnForAMoment(t *testing.T) {
	for hold, served := range map[time.Duration]int{
		0:                     spareSections + shortSections,
		10 * time.Microsecond: 19, // in less than 200 us
		time.Millisecond:      spareSections,
	} {
		subtestInFakeTime(t, hold.String(), withTwo(func(w *world, p, q *process) {
			hasWaited(p)
			mu := p.RWMutex("n")
			require.NoError(w, mu.Lock(w.Ctx))
			waiting := lockCrowd(w, 2*(spareSections+shortSections), mu.Lock)
			other := q.Queue("n", rwlock.Write)
			w.Settle()
			n := 0
			for ; other.IsWaiting(); n++ {
				w.Pass(hold)
				require.NoError(w, mu.Unlock(w.Ctx))
				w.Settle()
			}
			require.Equal(w, served, n-1, "besides the one who was in")
			w.Release(other.Granted())
			for _, l := range waiting[n-1:] {
				require.NoError(w, l.Result())
				require.NoError(w, mu.Unlock(w.Ctx))
			}
			w.OnlyTokensLeft()
		}))
	}
}

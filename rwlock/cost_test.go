package rwlock_test

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

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
	inFakeTime(t, func(w *world) {
		p := w.Process()
		p.WarmUp()
		p.Link.ResetCalls()
		const rounds = 100
		for range rounds {
			for _, mode := range bothModes {
				w.Release(p.Take("n", mode))
			}
		}
		require.Equal(w, map[string]int{"EVALSHA": 2 * 2 * rounds}, sent(p.Link))
	})
}

func TestUncontendedAllocations(t *testing.T) {
	if testkit.RaceDetector {
		t.Skip("the race detector allocates")
	}
	server := testredis.Start(t)
	locker := testkit.Dial(t, server.Addr(), rueidis.ClientOption{})
	ctx := t.Context()
	allocations := testing.AllocsPerRun(1000, func() {
		lease, err := locker.Lock(ctx, "n")
		if err == nil {
			err = lease.Release(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.0f allocations", allocations)
	require.LessOrEqual(t, allocations, 10.0)
}

// A process may hold thousands of leases, so what each one keeps in memory is bounded.
func TestHeapOfALease(t *testing.T) {
	if testkit.RaceDetector {
		t.Skip("the race detector allocates")
	}
	const leases, most = 10_000, 500
	server := testredis.Start(t)
	locker := testkit.Dial(t, server.Addr(), rueidis.ClientOption{}, rwlock.WithTTL(time.Hour)) // no renewals
	names := make([]string, leases)
	for i := range names {
		names[i] = "name-" + strconv.Itoa(i)
	}
	var err error
	held := make([]*rwlock.Lease, leases)
	before := liveHeap()
	for i, name := range names {
		held[i], err = locker.Lock(t.Context(), name)
		require.NoError(t, err)
	}
	perLease := (liveHeap() - before) / leases
	t.Logf("%d bytes", perLease)
	require.LessOrEqual(t, perLease, int64(most))
	noneLost(t, locker, held)
}

// liveHeap is what is left of the heap after a collection, in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // what pools keep goes in the second one
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
		var err error
		leases[i], err = take(t.Context(), strconv.Itoa(i))
		require.NoError(t, err)
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

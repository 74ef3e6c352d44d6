package rwlock_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// sent returns the commands that have reached the server over the link since ResetCalls, without the PINGs by which
// rueidis keeps its connections alive whatever a locker does.
func sent(link *testredis.Link) map[string]int {
	calls := link.AllCalls()
	delete(calls, "PING")
	return calls
}

// 64 acquisitions wait for one name in one process, and its server hears of them once a refresh interval.
func TestWaitingCostsOneRefresh(t *testing.T) {
	everywhere(t, func(w *world) {
		const waiters, refreshes = 64, 6
		held := w.process().lock("n", rwlock.Write)
		p := w.process()
		var all []*pending
		for range waiters {
			all = append(all, p.lineUp("n", rwlock.Write, func(*rwlock.Lease) {}))
		}
		var others atomic.Int32
		p.link.OnCommand(func(cmd []string) {
			if cmd[0] != "PING" && !running(scripts.Refresh)(cmd) {
				others.Add(1)
			}
		})
		// From one refresh to another, by what the server sees of it.
		count := func() int { return p.link.Calls("EVALSHA") }
		p.link.ResetCalls()
		start := count()
		w.eventually("a refresh", func() bool { return count() > start })
		began := time.Now()
		p.link.ResetCalls()
		w.eventually("some more", func() bool { return count() >= refreshes })
		took := time.Since(began)

		require.Equal(w.t, map[string]int{"EVALSHA": refreshes}, sent(p.link))
		require.Zero(w.t, others.Load(), "nothing but the refresh")
		if w.mini != nil {
			require.Equal(w.t, refreshes*w.refresh(), took)
		}
		require.GreaterOrEqual(w.t, took, refreshes*w.refresh()*9/10)

		w.release(held)
		for _, a := range all {
			a.granted()
		}
	})
}

func TestUncontendedCostsTwoCommands(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.process()
		w.release(p.lock("n", rwlock.Write), p.lock("n", rwlock.Read)) // the scripts are known from now on
		p.link.ResetCalls()
		const rounds = 100
		for range rounds {
			for _, mode := range bothModes {
				w.release(p.lock("n", mode))
			}
		}
		require.Equal(w.t, map[string]int{"EVALSHA": 2 * 2 * rounds}, sent(p.link))
	})
}

func TestUncontendedAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	server := testredis.Start(t)
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
	require.NoError(t, err)
	defer client.Close()
	locker, err := rwlock.New(client)
	require.NoError(t, err)
	defer locker.Close()
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
	require.LessOrEqual(t, allocations, 16.0)
}

// renewals counts those that reach the server and those that are confirmed.
type renewals struct {
	w      *world
	p      *process
	leases []*rwlock.Lease
}

// hold takes n locks in one process and returns how many goroutines that has added, with those of its client.
func (r *renewals) hold(n int) (goroutines int) {
	w := r.w
	w.t.Helper()
	w.settle()
	before := runtime.NumGoroutine()
	r.p = w.process()
	for i := range n {
		r.leases = append(r.leases, r.p.lock(fmt.Sprint("lock ", i), rwlock.Mode(1+i%2)))
	}
	return runtime.NumGoroutine() - before
}

// lastTenTTLs checks what it takes to keep the leases for ten TTLs, and that none is lost.
func (r *renewals) check(n int, ttls int, passed time.Duration) {
	w, stats := r.w, r.p.Stats()
	w.t.Helper()
	for _, lease := range r.leases {
		require.NoError(w.t, lease.Err())
	}
	require.Equal(w.t, n, stats.Held)
	require.Zero(w.t, stats.Lost)
	require.Zero(w.t, stats.RenewFailed)
	perTTL := float64(stats.Renewed) / float64(n) / (float64(passed) / float64(w.ttl))
	w.t.Logf("%d leases for %v: %.3f renewals a TTL and lease", n, passed, perTTL)
}

package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F16: a waiter is itself a short lease: a dead one drops out of the queue within it, whatever came before, and no
// timeout adds to another.

// deadWaiters queues n acquisitions of n processes for "n", readers and writers by turns, and then cuts the processes
// off.
func deadWaiters(w *world, n int) {
	w.Helper()
	crowd := make([]*process, n)
	for i := range crowd {
		crowd[i] = w.Process()
		crowd[i].Queue("n", []rwlock.Mode{rwlock.Write, rwlock.Read}[i%2])
	}
	for _, p := range crowd {
		p.Die()
		go p.Close() // it cannot reach the server; it only stops trying
	}
}

func TestF16DeadWaitersDropOutWithinTheirLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.Process().Take("n", rwlock.Write)
		deadWaiters(w, 20)
		last := w.Process().Queue("n", rwlock.Write)
		w.Pass(w.Claim() + time.Millisecond)
		require.Len(w, w.Inspect("n").Waiters, 1)
		require.True(w, last.IsWaiting())
		w.Release(held)
		w.Release(last.Granted())
		w.OnlyTokensLeft()
	})
}

// The holder leaves while the queue's head is a crowd of the newly dead: one of them may be handed the lock, for the
// claim time; by then the leases of the others have run out too.
func TestF16CrowdOfDeadWaitersCostsOneClaim(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.Process().Take("n", rwlock.Write)
		live := w.Process()
		crowd := make([]*process, 20)
		for i := range crowd {
			crowd[i] = w.Process()
			crowd[i].Queue("n", rwlock.Write)
		}
		last := live.Queue("n", rwlock.Write)
		for _, p := range crowd {
			p.Die()
		}
		w.Release(held)
		released := time.Now()
		w.Release(last.Granted())
		require.LessOrEqual(w, last.At.Sub(released), w.Claim()+2*time.Millisecond)
	})
}

// For two hours waiters come and die behind a holder and before a live one. The live one stays where it is, nothing of
// the others stays, and the end of it all takes as long as it would have at first.
func TestF16NothingAddsUpOverHours(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const pause, crowd = 5 * time.Minute, 4
		span := testredis.Few(30*time.Minute, 3*time.Hour)
		w.TTL = time.Minute
		holder := w.Process()
		held := holder.Take("n", rwlock.Write)
		first := w.Process().Queue("n", rwlock.Write)
		place := w.Inspect("n").Waiters[0].Hold
		for range span / pause {
			deadWaiters(w, crowd)
			w.Pass(w.Claim() + time.Millisecond)
			waiters := w.Inspect("n").Waiters
			require.Len(w, waiters, 1)
			require.Equal(w, place, waiters[0].Hold, "the live waiter keeps its place")
			require.Equal(w, []string{"fencelock:{n}", "fencelock:{n}:q"}, w.LockKeys())
			w.Pass(pause)
		}
		require.NoError(w, held.Err())
		deadWaiters(w, crowd)
		released := time.Now()
		w.Release(held)
		w.Release(first.Granted())
		require.Zero(w, first.At.Sub(released), "it was first, and the dead behind it cost nothing")
		w.Pass(w.Claim())
		last := holder.Take("n", rwlock.Write)
		require.LessOrEqual(w, time.Since(released), w.Claim()+time.Millisecond)
		w.Release(last)
		w.OnlyTokensLeft()
	})
}

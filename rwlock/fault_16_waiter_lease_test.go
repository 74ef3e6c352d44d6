package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F16: a waiter is itself a short lease: a dead one drops out of the queue within it, whatever came before, and no
// timeout adds to another.

// deadWaiters queues n acquisitions of n processes for "n", readers and writers by turns, and then cuts the processes
// off.
func (w *world) deadWaiters(n int) {
	w.t.Helper()
	crowd := make([]*process, n)
	for i := range crowd {
		crowd[i] = w.process()
		crowd[i].queue("n", []rwlock.Mode{rwlock.Write, rwlock.Read}[i%2])
	}
	for _, p := range crowd {
		p.die()
		go p.Close() // it cannot reach the server; it only stops trying
	}
}

func TestF16DeadWaitersDropOutWithinTheirLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.process().lock("n", rwlock.Write)
		w.deadWaiters(20)
		last := w.process().queue("n", rwlock.Write)
		w.pass(w.claim() + time.Millisecond)
		require.Len(w.t, w.inspect("n").Waiters, 1)
		require.True(w.t, last.isWaiting())
		w.release(held)
		w.release(last.granted())
		w.onlyTokensLeft()
	})
}

// The holder leaves while the queue's head is a crowd of the newly dead: one of them may be handed the lock, for the
// claim time; by then the leases of the others have run out too.
func TestF16CrowdOfDeadWaitersCostsOneClaim(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.process().lock("n", rwlock.Write)
		live := w.process()
		crowd := make([]*process, 20)
		for i := range crowd {
			crowd[i] = w.process()
			crowd[i].queue("n", rwlock.Write)
		}
		last := live.queue("n", rwlock.Write)
		for _, p := range crowd {
			p.die()
		}
		w.release(held)
		released := time.Now()
		w.release(last.granted())
		require.LessOrEqual(w.t, last.at.Sub(released), w.claim()+2*time.Millisecond)
	})
}

// For two hours waiters come and die behind a holder and before a live one. The live one stays where it is, nothing of
// the others stays, and the end of it all takes as long as it would have at first.
func TestF16NothingAddsUpOverHours(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const span, pause, crowd = 3 * time.Hour, 5 * time.Minute, 4
		w.ttl = time.Minute
		holder := w.process()
		held := holder.lock("n", rwlock.Write)
		first := w.process().queue("n", rwlock.Write)
		place := w.inspect("n").Waiters[0].Hold
		for range span / pause {
			w.deadWaiters(crowd)
			w.pass(w.claim() + time.Millisecond)
			waiters := w.inspect("n").Waiters
			require.Len(w.t, waiters, 1)
			require.Equal(w.t, place, waiters[0].Hold, "the live waiter keeps its place")
			require.Equal(w.t, []string{"fencelock:{n}", "fencelock:{n}:q"}, w.lockKeys())
			w.pass(pause)
		}
		require.NoError(w.t, held.Err())
		w.deadWaiters(crowd)
		released := time.Now()
		w.release(held)
		w.release(first.granted())
		require.Zero(w.t, first.at.Sub(released), "it was first, and the dead behind it cost nothing")
		w.pass(w.claim())
		last := holder.lock("n", rwlock.Write)
		require.LessOrEqual(w.t, time.Since(released), w.claim()+time.Millisecond)
		w.release(last)
		w.onlyTokensLeft()
	})
}

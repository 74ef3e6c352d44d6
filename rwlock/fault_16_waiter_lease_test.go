package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F16: a waiter is itself a short lease: a dead one drops out of the queue within it, whatever came before.

// deadWaiters queues n acquisitions of n processes, readers and writers by turns, and then cuts them off.
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
		w.Release(last.GrantedAfter(held))
		w.OnlyTokensLeft()
	})
}

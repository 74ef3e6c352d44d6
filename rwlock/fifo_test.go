package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestFIFOOfManyProcesses(t *testing.T) {
	everywhere(t, func(w *world) {
		const waiters, lockers = 200, 10
		w.TTL = 10 * time.Second // a busy machine must not drop a waiter
		held := w.Process().Take("n", rwlock.Write)
		var processes []*process
		for range lockers {
			processes = append(processes, w.Process())
		}
		var r testkit.Order
		var all []*pending
		for i := range waiters {
			p := processes[i*7%lockers]
			all = append(all, p.LineUp("n", rwlock.Write, func(l *rwlock.Lease) { r.Enter(i, l) }))
		}
		w.Release(held)
		for _, a := range all {
			a.Granted()
		}
		require.Len(w, r.Entered, waiters)
		for i := range waiters {
			require.Equal(w, i, r.Entered[i], "%v", r.Entered)
			if i > 0 {
				require.Greater(w, r.Tokens[i], r.Tokens[i-1])
			}
		}
		handedOff := uint64(0)
		for _, p := range processes {
			handedOff += p.Stats().HandedOff
		}
		require.EqualValues(w, waiters, handedOff, "each from hand to hand")
		w.OnlyTokensLeft()
	})
}

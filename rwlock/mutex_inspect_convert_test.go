package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Who waits to be upgraded is in the lock, and is counted.
func TestInspectCountsWhoIsUpgraded(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.RLock(w.ctx))
		other := q.lock("n", rwlock.Read)
		upgrading := w.locking(w.ctx, mu.Upgrade)
		w.settle()
		require.True(w.t, upgrading.isWaiting())
		state, err := p.Inspect(w.ctx, "n")
		require.NoError(w.t, err)
		require.Len(w.t, state.Holders, 2)
		for _, h := range state.Holders {
			require.Equal(w.t, 1, h.Count)
			require.False(w.t, h.Lingering)
		}
		w.release(other)
		require.NoError(w.t, upgrading.result())
		require.NoError(w.t, mu.Unlock(w.ctx))
		w.onlyTokensLeft()
	})
}

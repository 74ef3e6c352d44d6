package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Who waits to be upgraded is in the lock, and is counted.
func TestInspectCountsWhoIsUpgraded(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		mu := p.RWMutex("n")
		require.NoError(w, mu.RLock(w.Ctx))
		other := q.Take("n", rwlock.Read)
		upgrading := w.Call(w.Ctx, mu.Upgrade)
		w.Settle()
		require.True(w, upgrading.IsWaiting())
		state, err := p.Inspect(w.Ctx, "n")
		require.NoError(w, err)
		require.Len(w, state.Holders, 2)
		for _, h := range state.Holders {
			require.Equal(w, 1, h.Count)
			require.False(w, h.Lingering)
		}
		w.Release(other)
		require.NoError(w, upgrading.Result())
		require.NoError(w, mu.Unlock(w.Ctx))
		w.OnlyTokensLeft()
	})
}

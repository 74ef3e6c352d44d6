package rwlock_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// One who unlocks what it has not locked, beside others who come and go, is told so or takes another's place; the
// RWMutex stays usable.
func TestUnlockWithoutALockBesideOthers(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.Process()
		mu := p.RWMutex("n", rwlock.WithLinger(w.TTL))
		const rounds = 200_000
		calls := func(err error) {
			if err != nil && !errors.Is(err, rwlock.ErrNotHeld) {
				w.Error(err)
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			for range rounds {
				calls(mu.Unlock(w.Ctx))
			}
		})
		all.Go(func() {
			for range rounds {
				calls(mu.Lock(w.Ctx))
				calls(mu.Unlock(w.Ctx))
			}
		})
		all.Wait()
		require.NoError(w, mu.Lock(w.Ctx))
		require.NotZero(w, mu.Token())
		require.NoError(w, mu.Context(w.Ctx).Err())
		require.NoError(w, mu.Unlock(w.Ctx))
	})
}

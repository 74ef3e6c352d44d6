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
		p := w.process()
		mu := p.RWMutex("n", rwlock.WithLinger(w.ttl))
		const rounds = 200_000
		calls := func(err error) {
			if err != nil && !errors.Is(err, rwlock.ErrNotHeld) {
				w.t.Error(err)
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			for range rounds {
				calls(mu.Unlock(w.ctx))
			}
		})
		all.Go(func() {
			for range rounds {
				calls(mu.Lock(w.ctx))
				calls(mu.Unlock(w.ctx))
			}
		})
		all.Wait()
		require.NoError(w.t, mu.Lock(w.ctx))
		require.NotZero(w.t, mu.Token())
		require.NoError(w.t, mu.Context(w.ctx).Err())
		require.NoError(w.t, mu.Unlock(w.ctx))
	})
}

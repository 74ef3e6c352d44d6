package rwlock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Readers that come and go all the time find each other, the first and the last of them too; in the end nobody is in.
func TestReadersThatComeAndGo(t *testing.T) {
	inFakeTime(t, func(w *world) {
		mu := w.Process().RWMutex("n", rwlock.WithLinger(time.Hour))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 20_000 {
					if !assert.NoError(w.T, mu.RLock(w.Ctx)) || !assert.NoError(w.T, mu.RUnlock(w.Ctx)) {
						return
					}
				}
			})
		}
		all.Wait()
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
		require.NoError(w, mu.TryLock(w.Ctx))
		require.NoError(w, mu.Unlock(w.Ctx))
	})
}

package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// A reader that leaves others behind after a suspension is told of the loss, though no timer has noticed it yet; so are
// those after it, and nobody joins them.
func TestEveryReaderHearsOfALossByAPause(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := testkit.NewWallClock(0)
		mu := w.Process(clock.Option()).RWMutex("n")
		for range 3 {
			require.NoError(w, mu.RLock(w.Ctx))
		}
		clock.Step(w.TTL)
		for range 3 {
			require.Equal(w, rwlock.Paused, w.Loss(mu.RUnlock(w.Ctx)).Reason)
		}
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
		require.NoError(w, mu.Lock(w.Ctx))
		require.NoError(w, mu.Unlock(w.Ctx))
	})
}

// A lease that Close has given back serves nobody of the process any more, from before the RWMutex hears of it.
func TestALeaseThatCloseHasGivenBackServesNobody(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		mu := p.RWMutex("n")
		require.NoError(w, mu.Lock(w.Ctx))
		closed := make(chan struct{})
		require.False(w, rwlock.ServesAfter(mu, func() { defer close(closed); _ = p.Close() }))
		w.UntilClosed(closed)
		require.ErrorIs(w, context.Cause(mu.Context(w.Ctx)), rwlock.ErrReleased)
		require.NoError(w, mu.Unlock(w.Ctx))
		require.ErrorIs(w, mu.Lock(w.Ctx), rwlock.ErrClosed)
		w.OnlyTokensLeft()
	})
}

// No timer is left for a lock that lingered once its lease has ended: by Close, also where somebody is in, by a loss,
// or because the lock was given back.
func TestNoTimerOfLingeringOutlivesTheLease(t *testing.T) {
	for name, end := range map[string]func(w *world, p *process, mu *rwlock.RWMutex){
		"Close": func(w *world, p *process, _ *rwlock.RWMutex) { require.NoError(w, p.Close()) },
		"Close while somebody is in": func(w *world, p *process, mu *rwlock.RWMutex) {
			require.NoError(w, mu.Lock(w.Ctx))
			require.NoError(w, p.Close())
		},
		"a loss": func(w *world, _ *process, _ *rwlock.RWMutex) { w.FlushAll(); w.Pass(w.TTL) },
		"another process": func(w *world, _ *process, _ *rwlock.RWMutex) {
			w.Release(w.Process().Take("n", rwlock.Write))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.Process()
				hasWaited(p)
				mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
				relock(w, mu)
				end(w, p, mu)
				w.Settle()
				require.False(w, rwlock.LingerTimer(mu))
			})
		})
	}
}

package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// A reader that leaves others behind after a suspension is told of the loss, though no timer has noticed it yet; so are
// those after it, and nobody joins them.
func TestEveryReaderHearsOfALossByAPause(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := newWallClock(0)
		mu := w.process(clock.option()).RWMutex("n")
		for range 3 {
			require.NoError(w.t, mu.RLock(w.ctx))
		}
		clock.step(w.ttl)
		for range 3 {
			require.Equal(w.t, rwlock.Paused, w.loss(mu.RUnlock(w.ctx)).Reason)
		}
		require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrNotHeld)
		require.NoError(w.t, mu.Lock(w.ctx))
		require.NoError(w.t, mu.Unlock(w.ctx))
	})
}

// A lease that Close has given back serves nobody of the process any more, from before the RWMutex hears of it.
func TestALeaseThatCloseHasGivenBackServesNobody(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		closed := make(chan struct{})
		require.False(w.t, rwlock.ServesAfter(mu, func() { defer close(closed); _ = p.Close() }))
		w.untilClosed(closed)
		require.ErrorIs(w.t, context.Cause(mu.Context(w.ctx)), rwlock.ErrReleased)
		require.NoError(w.t, mu.Unlock(w.ctx))
		require.ErrorIs(w.t, mu.Lock(w.ctx), rwlock.ErrClosed)
		w.onlyTokensLeft()
	})
}

// No timer is left for a lock that lingered once its lease has ended: by Close, also where somebody is in, by a loss,
// or because the lock was given back.
func TestNoTimerOfLingeringOutlivesTheLease(t *testing.T) {
	for name, end := range map[string]func(w *world, p *process, mu *rwlock.RWMutex){
		"Close": func(w *world, p *process, _ *rwlock.RWMutex) { require.NoError(w.t, p.Close()) },
		"Close while somebody is in": func(w *world, p *process, mu *rwlock.RWMutex) {
			require.NoError(w.t, mu.Lock(w.ctx))
			require.NoError(w.t, p.Close())
		},
		"a loss": func(w *world, _ *process, _ *rwlock.RWMutex) { w.flushAll(); w.pass(w.ttl) },
		"another process": func(w *world, _ *process, _ *rwlock.RWMutex) {
			w.release(w.process().lock("n", rwlock.Write))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.process()
				p.hasWaited()
				mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
				relock(w, mu)
				end(w, p, mu)
				w.settle()
				require.False(w.t, rwlock.LingerTimer(mu))
			})
		})
	}
}

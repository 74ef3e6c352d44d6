package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A writer that leads gives a read lease back first that lingers here. It does not wait for that beyond the end of its
// context, since all others of the process wait for it; the release goes on in the background.
func TestALeaderThatGivesALeaseBackEndsWithItsContext(t *testing.T) {
	for name, lock := range map[string]func(*rwlock.RWMutex, context.Context) error{
		"Lock": (*rwlock.RWMutex).Lock, "TryLock": (*rwlock.RWMutex).TryLock,
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p, q := w.Process(), w.Process()
				mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
				require.NoError(w, mu.RLock(w.Ctx))
				require.NoError(w, mu.RUnlock(w.Ctx))
				p.Link.Blackhole(testredis.Both)
				began := time.Now()
				err := lock(mu, soonOver(w))
				require.Equal(w, 50*time.Millisecond, time.Since(began))
				require.ErrorIs(w, err, rwlock.ErrNotAcquired)
				require.ErrorIs(w, err, context.DeadlineExceeded)
				require.ErrorContains(w, err, "after 50ms")
				require.Zero(w, p.Stats().Held)

				p.Link.Restore()
				p.Link.Cut()
				w.Release(q.Take("n", rwlock.Write))
				w.RequireLess(time.Since(began), w.TTL/2, "it is released in the background")
				w.OnlyTokensLeft()
			})
		})
	}
}

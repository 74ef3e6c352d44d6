package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F21: a release ignores the end of its context. The request that took the lock is often dead when it gives it back.

func TestF21ReleaseUnderADeadContextFreesTheLock(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	everywhere(t, func(w *world) {
		for _, dead := range []context.Context{cancelled, expired} {
			p, q := w.process(), w.process()
			for how, giveBack := range map[string]func() error{
				"Lease.Release": func() error { return p.lock("n", rwlock.Write).Release(dead) },
				"Lease.Release of a reader": func() error {
					return p.lock("n", rwlock.Read).Release(dead)
				},
				"RWMutex.Unlock": func() error {
					m := p.RWMutex("n")
					require.NoError(w.t, m.Lock(w.ctx))
					return m.Unlock(dead)
				},
				"RWMutex.RUnlock": func() error {
					m := p.RWMutex("n")
					require.NoError(w.t, m.RLock(w.ctx))
					return m.RUnlock(dead)
				},
				"Do": func() error {
					ctx, cancel := context.WithCancel(w.ctx)
					return p.Do(ctx, "n", func(context.Context) error { cancel(); return nil })
				},
				"a context that dies first": func() error {
					ctx, cancel := context.WithCancel(w.ctx)
					lease, err := p.Lock(ctx, "n")
					require.NoError(w.t, err)
					work := lease.Context(ctx)
					cancel()
					<-work.Done()
					require.NoError(w.t, lease.Err(), "the end of a context is not the end of the lease")
					return lease.Release(ctx)
				},
			} {
				require.NoError(w.t, giveBack(), how)
				require.NoError(w.t, q.acquireOnce("n"), "after %s", how)
			}
			w.onlyTokensLeft()
		}
	})
}

// The dead context hands the lock on as a living one does.
func TestF21ReleaseUnderADeadContextLetsTheNextIn(t *testing.T) {
	everywhere(t, func(w *world) {
		held := w.process().lock("n", rwlock.Write)
		next := w.process().queue("n", rwlock.Write)
		dead, cancel := context.WithCancel(w.ctx)
		cancel()
		require.NoError(w.t, held.Release(dead))
		w.release(next.granted())
	})
}

// It is not for ever either: a server that does not answer is waited for as long as the release timeout says, and then
// released in the background.
func TestF21ReleaseHasItsOwnTimeout(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const limit = 700 * time.Millisecond
		p := w.process(rwlock.WithReleaseTimeout(limit))
		lease := p.lock("n", rwlock.Write)
		next := w.process().queue("n", rwlock.Write)
		p.link.Hold(testredis.Both)
		start := time.Now()
		err := lease.Release(w.ctx)
		require.Equal(w.t, limit, time.Since(start))
		require.ErrorIs(w.t, err, rwlock.ErrNoQuorum)
		require.ErrorContains(w.t, err, "no reply in 700ms")
		require.ErrorContains(w.t, err, `"n"`)
		require.NotErrorIs(w.t, err, context.DeadlineExceeded)
		require.True(w.t, rwlock.Indeterminate(err))
		require.ErrorIs(w.t, lease.Err(), rwlock.ErrReleased)
		p.link.Restore()
		w.release(next.granted())
		require.Less(w.t, time.Since(start), w.ttl, "freed by the release in the background, not by the end of its TTL")
		w.onlyTokensLeft()
	})
}

package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// F21: a release ignores the end of its context. The request that took the lock is often dead when it gives it back.

func TestF21ReleaseUnderADeadContextFreesTheLock(t *testing.T) {
	expired, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	everywhere(t, func(w *world) {
		for _, dead := range []context.Context{ended(context.Background()), expired} {
			p, q := w.Process(), w.Process()
			for how, giveBack := range map[string]func() error{
				"Lease.Release":             func() error { return p.Take("n", rwlock.Write).Release(dead) },
				"Lease.Release of a reader": func() error { return p.Take("n", rwlock.Read).Release(dead) },
				"RWMutex.Unlock": func() error {
					m := p.RWMutex("n")
					require.NoError(w, m.Lock(w.Ctx))
					return m.Unlock(dead)
				},
				"RWMutex.RUnlock": func() error {
					m := p.RWMutex("n")
					require.NoError(w, m.RLock(w.Ctx))
					return m.RUnlock(dead)
				},
				"Do": func() error {
					ctx, cancel := context.WithCancel(w.Ctx)
					return p.Do(ctx, "n", func(context.Context) error { cancel(); return nil })
				},
				"a context that dies first": func() error {
					ctx, cancel := context.WithCancel(w.Ctx)
					lease := p.Acquire(ctx, "n", rwlock.Write).Granted()
					work := lease.Context(ctx)
					cancel()
					<-work.Done()
					require.NoError(w, lease.Err(), "the end of a context is not the end of the lease")
					return lease.Release(ctx)
				},
			} {
				require.NoError(w, giveBack(), how)
				require.NoError(w, q.TryOnce("n"), "after %s", how)
			}
			w.OnlyTokensLeft()
		}
	})
}

// A release that the server has not answered goes on after the call, so that the lock is free before its TTL is over.
func TestF21AReleaseWithoutAnAnswerIsSentAgain(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		struck := p.Link.DropNextCommand(testkit.Running("release"))
		p.Link.Refuse() // so the client cannot send it again in time
		over := w.Call(w.Ctx, lease.Release)
		<-struck
		require.Error(w, over.Result())
		p.Link.Restore()
		w.Pass(w.TTL / 4)
		require.Empty(w, w.Inspect("n").Holders)
	}))
}

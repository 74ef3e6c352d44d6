package rwlock_test

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

func mutexExcludes(w *world) {
	p, q := w.process(), w.process()
	shared, same, remote := p.RWMutex("n"), p.RWMutex("n"), q.RWMutex("n")
	require.NoError(w.t, shared.Lock(w.ctx))
	for _, mu := range []*rwlock.RWMutex{shared, same, remote} {
		require.ErrorIs(w.t, mu.TryLock(w.ctx), rwlock.ErrNotAcquired)
		require.ErrorIs(w.t, mu.TryRLock(w.ctx), rwlock.ErrNotAcquired)
	}
	require.NoError(w.t, shared.Unlock(w.ctx))
	for _, mu := range []*rwlock.RWMutex{shared, shared, same, remote} {
		require.NoError(w.t, mu.RLock(w.ctx))
	}
	require.ErrorIs(w.t, shared.TryLock(w.ctx), rwlock.ErrNotAcquired)
	for _, mu := range []*rwlock.RWMutex{same, shared, remote, shared} {
		require.NoError(w.t, mu.RUnlock(w.ctx))
	}

	// A counter without a lock of its own: the race detector and the sum tell whether the sections were alone.
	const goroutines, rounds = 6, 5
	counter := 0
	var all sync.WaitGroup
	for i := range goroutines {
		mu := []*rwlock.RWMutex{shared, remote}[i%2]
		all.Go(func() {
			for range rounds {
				if err := mu.Lock(w.ctx); err != nil {
					w.t.Error(err)
					return
				}
				counter++
				if err := mu.Unlock(w.ctx); err != nil {
					w.t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(w.t, goroutines*rounds, counter)
	w.onlyTokensLeft()
}

func mutexUnlocks(w *world) {
	p := w.process()
	mu := p.RWMutex("n")
	require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrNotHeld)
	require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrNotHeld)
	require.Zero(w.t, mu.Token())
	require.ErrorIs(w.t, context.Cause(mu.Context(w.ctx)), rwlock.ErrNotHeld)

	require.NoError(w.t, mu.RLock(w.ctx))
	require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrNotHeld, "held for reading")
	require.NoError(w.t, mu.RUnlock(w.ctx))

	require.NoError(w.t, mu.Lock(w.ctx))
	require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrNotHeld, "held for writing")
	require.GreaterOrEqual(w.t, w.inspect("n").Token, mu.Token(), "Inspect shows the last of the block")
	ctx := mu.Context(w.ctx)
	fence, ok := fencing.FromContext(ctx, "n")
	require.True(w.t, ok)
	require.Equal(w.t, mu.Token(), fence.Token)
	require.NoError(w.t, mu.Unlock(w.ctx))
	w.untilClosed(ctx.Done())
	require.ErrorIs(w.t, context.Cause(ctx), rwlock.ErrReleased)
	require.ErrorContains(w.t, context.Cause(ctx), `lock "n"`)

	require.NoError(w.t, mu.Lock(w.ctx))
	ctx = mu.Context(w.ctx)
	w.flushAll()
	w.untilClosed(ctx.Done())
	require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrLost)
	require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrNotHeld)
	require.NoError(w.t, mu.Lock(w.ctx), "a loss leaves it usable")
	require.NoError(w.t, mu.Unlock(w.ctx))
	w.onlyTokensLeft()
}

package rwlock_test

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

func mutexExcludes(w *world) {
	p, q := w.Process(), w.Process()
	shared, same, remote := p.RWMutex("n"), p.RWMutex("n"), q.RWMutex("n")
	require.NoError(w, shared.Lock(w.Ctx))
	for _, mu := range []*rwlock.RWMutex{shared, same, remote} {
		require.ErrorIs(w, mu.TryLock(w.Ctx), rwlock.ErrNotAcquired)
		require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired)
	}
	require.NoError(w, shared.Unlock(w.Ctx))
	for _, mu := range []*rwlock.RWMutex{shared, shared, same, remote} {
		require.NoError(w, mu.RLock(w.Ctx))
	}
	require.ErrorIs(w, shared.TryLock(w.Ctx), rwlock.ErrNotAcquired)
	for _, mu := range []*rwlock.RWMutex{same, shared, remote, shared} {
		require.NoError(w, mu.RUnlock(w.Ctx))
	}

	// A counter without a lock of its own: the race detector and the sum tell whether the sections were alone.
	const goroutines, rounds = 6, 5
	counter := 0
	var all sync.WaitGroup
	for i := range goroutines {
		mu := []*rwlock.RWMutex{shared, remote}[i%2]
		all.Go(func() {
			for range rounds {
				if err := mu.Lock(w.Ctx); err != nil {
					w.Error(err)
					return
				}
				counter++
				if err := mu.Unlock(w.Ctx); err != nil {
					w.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(w, goroutines*rounds, counter)
	w.OnlyTokensLeft()
}

func mutexUnlocks(w *world) {
	p := w.Process()
	mu := p.RWMutex("n")
	require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
	require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
	require.Zero(w, mu.Token())
	require.ErrorIs(w, context.Cause(mu.Context(w.Ctx)), rwlock.ErrNotHeld)

	require.NoError(w, mu.RLock(w.Ctx))
	require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld, "held for reading")
	require.NoError(w, mu.RUnlock(w.Ctx))

	require.NoError(w, mu.Lock(w.Ctx))
	require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld, "held for writing")
	require.GreaterOrEqual(w, w.Inspect("n").Token, mu.Token(), "Inspect shows the last of the block")
	ctx := mu.Context(w.Ctx)
	fence, ok := fencing.FromContext(ctx, "n")
	require.True(w, ok)
	require.Equal(w, mu.Token(), fence.Token)
	require.NoError(w, mu.Unlock(w.Ctx))
	w.UntilClosed(ctx.Done())
	require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
	require.ErrorContains(w, context.Cause(ctx), `lock "n"`)

	require.NoError(w, mu.Lock(w.Ctx))
	ctx = mu.Context(w.Ctx)
	w.FlushAll()
	w.UntilClosed(ctx.Done())
	require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
	require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
	require.NoError(w, mu.Lock(w.Ctx), "a loss leaves it usable")
	require.NoError(w, mu.Unlock(w.Ctx))
	w.OnlyTokensLeft()
}

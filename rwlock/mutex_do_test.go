package rwlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// A section of Do has the fence of its own lock, and the lock is free again however its function ends.
func TestRWMutexDo(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		mu := p.RWMutex("cfg")
		var last fencing.Token
		section := func(mode rwlock.Mode) func(context.Context) error {
			return func(ctx context.Context) error {
				fence, err := fencing.Require(ctx, "cfg")
				require.NoError(w, err)
				require.Equal(w, mode, fence.Mode)
				require.Equal(w, mu.Token(), fence.Token)
				require.Greater(w, fence.Token, last)
				last = fence.Token
				require.ErrorIs(w, mu.Lock(ctx), rwlock.ErrNested)
				return context.Canceled
			}
		}
		require.Equal(w, context.Canceled, mu.Do(w.Ctx, section(rwlock.Write)))
		require.Equal(w, context.Canceled, mu.RDo(w.Ctx, section(rwlock.Read)))
		require.Panics(w, func() { _ = mu.Do(w.Ctx, func(context.Context) error { panic("in the section") }) })
		require.ErrorIs(w, mu.Do(w.Ctx, nil), rwlock.ErrOption)
		misused := mu.RDo(w.Ctx, func(context.Context) error { return mu.Upgrade(w.Ctx) })
		require.ErrorIs(w, misused, rwlock.ErrNotHeld, "it has left another mode behind")
		require.NoError(w, mu.Unlock(w.Ctx))

		ended, cancel := context.WithCancel(w.Ctx)
		require.NoError(w, mu.Do(ended, func(context.Context) error { cancel(); return nil }))
		require.ErrorIs(w, mu.RDo(ended, func(context.Context) error { panic("it runs") }), context.Canceled)
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
		w.OnlyTokensLeft()
	})
}

// Readers are in their sections together.
func TestRWMutexRDoIsShared(t *testing.T) {
	inFakeTime(t, func(w *world) {
		mu := w.Process().RWMutex("cfg")
		require.NoError(w, mu.RDo(w.Ctx, func(ctx context.Context) error {
			inner := w.Call(w.Ctx, func(ctx context.Context) error {
				return mu.RDo(ctx, func(context.Context) error { return nil })
			})
			return inner.Result()
		}))
	})
}

package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// F14: a write lock asked for by another process inside the read lock of its owner would wait for that read lock. It is
// refused at once, whether others wait or not. In the process that reads it is an upgrade, past those who wait.
func TestFault14WaitingForOneselfIsImpossible(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, _ *testredis.Mini) {
		first, second, others := w.process(), w.process(), w.process()
		ctx, owner := owned(t)
		reading := must(t)(first.RLock(ctx, "a"))
		deeper := must(t)(first.RLock(ctx, "a"))

		refused := func() {
			t.Helper()
			begun := time.Now()
			for _, l := range []*reentrant.Locker{first.Locker, second.Locker} {
				_, err := l.Lock(elsewhere(t, owner), "a")
				require.ErrorIs(t, err, rwlock.ErrUpgrade)
				require.NotErrorIs(t, err, rwlock.ErrNotAcquired)
			}
			_, err := first.Lock(elsewhere(t, owner), "a")
			require.EqualError(t, err, `rwlock: cannot upgrade: lock "a" is held for reading by the same owner`)
			require.Zero(t, time.Since(begun))
			require.Equal(t, rwlock.Read, first.inspect(t, "a").Mode)
		}
		refused()

		stranger, _ := owned(t)
		written := make(chan error)
		go func() { written <- others.Do(stranger, "a", func(context.Context) error { return nil }) }()
		synctest.Wait()
		require.Len(t, first.inspect(t, "a").Waiters, 1)
		refused()

		writing := must(t)(first.Lock(ctx, "a"))
		require.Equal(t, rwlock.Write, first.inspect(t, "a").Mode)
		require.NoError(t, writing.Release(ctx))
		require.NoError(t, deeper.Release(ctx))
		require.NoError(t, reading.Release(ctx))
		require.NoError(t, <-written, "the refusals left nothing in the writer's way")
	})
}

package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// F14: a write lock asked for by another process inside the read lock of its owner would wait for that read lock. It is
// refused at once, whether others wait or not. In the process that reads it is an upgrade, past those who wait.
func TestFault14WaitingForOneselfIsImpossible(t *testing.T) {
	inFakeTime(t, func(w *world) {
		first, second, others := start(w), start(w), start(w)
		ctx, owner := owned(w)
		reading := must(w)(first.RLock(ctx, "a"))
		deeper := must(w)(first.RLock(ctx, "a"))

		refused := func() {
			w.Helper()
			begun := time.Now()
			for _, l := range []*reentrant.Locker{first.Locker, second.Locker} {
				_, err := l.Lock(elsewhere(w, owner), "a")
				require.ErrorIs(w, err, rwlock.ErrUpgrade)
				require.NotErrorIs(w, err, rwlock.ErrNotAcquired)
			}
			_, err := first.Lock(elsewhere(w, owner), "a")
			require.EqualError(w, err, `rwlock: cannot upgrade: lock "a" is held for reading by the same owner`)
			require.Zero(w, time.Since(begun))
			require.Equal(w, rwlock.Read, first.inspect("a").Mode)
		}
		refused()

		stranger, _ := owned(w)
		written := make(chan error)
		go func() { written <- others.Do(stranger, "a", func(context.Context) error { return nil }) }()
		synctest.Wait()
		require.Len(w, first.inspect("a").Waiters, 1)
		refused()

		writing := must(w)(first.Lock(ctx, "a"))
		require.Equal(w, rwlock.Write, first.inspect("a").Mode)
		require.NoError(w, writing.Release(ctx))
		require.NoError(w, deeper.Release(ctx))
		require.NoError(w, reading.Release(ctx))
		require.NoError(w, <-written, "the refusals left nothing in the writer's way")
	})
}

package rwlock_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// A parent context that lives as long as the process keeps nothing of the leases that were taken under it.
func TestLeaseContextsLeaveNothingInTheirParent(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		parent, cancel := context.WithCancel(w.ctx)
		defer cancel()
		heap := func() uint64 {
			w.pass(0)
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		run := func(n int) {
			for range n {
				require.NoError(w.t, p.Do(parent, "a", func(context.Context) error { return nil }))
			}
		}
		run(200)
		before := heap()
		run(2000)
		require.Less(w.t, int64(heap())-int64(before), int64(2000*300), "bytes kept for 2000 leases")
	})
}

// After a loss the mutex speaks of the lease that lives, not of the one that its loser has still to unlock.
func TestRWMutexSpeaksOfTheLiveLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		mu := w.process().RWMutex("a", rwlock.WithTTL(time.Second), rwlock.WithMaxHold(time.Second))
		require.NoError(w.t, mu.Lock(w.ctx))
		lost := mu.Token()
		w.pass(2 * time.Second)
		require.NoError(w.t, mu.Lock(w.ctx))
		require.Greater(w.t, mu.Token(), lost)
		require.NoError(w.t, mu.Context(w.ctx).Err())
		require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrLost)
		require.NotEqual(w.t, fencing.Token(0), mu.Token())
		require.NoError(w.t, mu.Unlock(w.ctx))
		require.Zero(w.t, mu.Token())
	})
}

package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/rwlock"
)

// F18: masters that forget, one after the other, let nobody else in and turn no token back.
func TestFault18ForgetfulMinorityKeepsTheLock(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		holder, other := w.Process(), w.Process()
		b := judge.For(w, "forgetful")
		at := b.Begin("x")
		lease := holder.Take("x", rwlock.Write)
		b.Acquired(at, lease)
		for i := range 2 {
			w.Wipe(i)
		}
		_, err := other.TryLock(w.Ctx, "x")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		time.Sleep(time.Minute)
		require.NoError(w, lease.Err(), "the other three keep it alive")
		w.Release(lease)

		at = b.Begin("x")
		next := other.Take("x", rwlock.Write)
		b.Acquired(at, next)
		require.Greater(w, next.Token(), lease.Token())
		w.Release(next)
	})
}

package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/rwlock"
)

// F18: masters that forget, one after the other, let nobody else in and turn no token back.
func TestFault18ForgetfulMinorityKeepsTheLock(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		holder, other := w.Process(), w.Process()
		b := judge.For(w, "forgetful")
		lease := judged(b, holder, "x")
		for i := range 2 {
			w.Wipe(i)
		}
		require.ErrorIs(w, expect.ErrorOf(other.TryLock(w.Ctx, "x")), rwlock.ErrNotAcquired)
		time.Sleep(time.Minute)
		require.NoError(w, lease.Err(), "the other three keep it alive")
		w.Release(lease)

		next := judged(b, other, "x")
		require.Greater(w, next.Token(), lease.Token())
		w.Release(next)
	})
}

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

// F18: the acknowledgement of some is never taken for that of a quorum, and says so by an error of its own.
func TestFault18MinorityIsNoQuorum(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		p := w.Process()
		p.Section("warm-up")
		for _, m := range w.Minis[2:] {
			m.Stop()
		}
		_, err := p.TryLock(w.Ctx, "x")
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.NotErrorIs(w, err, rwlock.ErrNotAcquired)
		_, err = p.Lock(w.Ctx, "x", rwlock.WithMaxWait(3*time.Second))
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.NotErrorIs(w, err, rwlock.ErrNotAcquired)
	})
}

// F18: as long as a quorum answers, whoever is in the way is the reason, in whatever order the answers come.
func TestFault18ContentionIsToldFromSilence(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		holder, p := w.Process(), w.Process()
		p.Section("warm-up")
		lease := holder.Take("x", rwlock.Write)
		for down := range 3 {
			if down > 0 {
				p.CutOff(down)
			}
			for i := range 20 {
				p.Links[0].Delay(time.Duration(i) * time.Millisecond)
				_, err := p.TryLock(w.Ctx, "x")
				require.ErrorIs(w, err, rwlock.ErrNotAcquired, "%d of 5 down", down)
				free, err := p.TryLock(w.Ctx, "y")
				require.NoError(w, err, "%d of 5 down", down)
				w.Release(free)
				time.Sleep(50 * time.Millisecond)
			}
		}
		w.Release(lease)
	})
}

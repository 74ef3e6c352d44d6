package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F18: masters that forget, one after the other, let nobody else in and turn no token back.
func TestFault18ForgetfulMinorityKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		holder, other := s.peer(time.Millisecond), s.peer(time.Millisecond)
		b := newChecker(t, "forgetful")
		at := b.begin("x")
		lease, err := holder.Lock(t.Context(), "x")
		require.NoError(t, err)
		b.acquired(at, lease)
		for i := range 2 {
			s.minis[i].Crash()
			s.minis[i].Recover()
		}
		_, err = other.TryLock(t.Context(), "x")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		time.Sleep(time.Minute)
		require.NoError(t, lease.Err(), "the other three keep it alive")
		require.NoError(t, lease.Release(t.Context()))

		at = b.begin("x")
		next, err := other.Lock(t.Context(), "x")
		require.NoError(t, err)
		b.acquired(at, next)
		require.Greater(t, next.Token(), lease.Token())
		require.NoError(t, next.Release(t.Context()))
	})
}

// F18: the acknowledgement of some is never taken for that of a quorum, and says so by an error of its own.
func TestFault18MinorityIsNoQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		p := s.peer(time.Millisecond)
		p.warm(t)
		for _, m := range s.minis[2:] {
			m.Stop()
		}
		_, err := p.TryLock(t.Context(), "x")
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.NotErrorIs(t, err, rwlock.ErrNotAcquired)
		_, err = p.Lock(t.Context(), "x", rwlock.WithMaxWait(3*time.Second))
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.NotErrorIs(t, err, rwlock.ErrNotAcquired)
	})
}

// F18: as long as a quorum answers, whoever is in the way is the reason, in whatever order the answers come.
func TestFault18ContentionIsToldFromSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		holder, p := s.peer(time.Millisecond), s.peer(time.Millisecond)
		p.warm(t)
		lease, err := holder.Lock(t.Context(), "x")
		require.NoError(t, err)
		for down := range 3 {
			if down > 0 {
				p.links[down].Refuse()
				p.links[down].Cut()
			}
			for i := range 20 {
				p.links[0].Delay(time.Duration(i) * time.Millisecond)
				_, err = p.TryLock(t.Context(), "x")
				require.ErrorIs(t, err, rwlock.ErrNotAcquired, "%d of 5 down", down)
				free, err := p.TryLock(t.Context(), "y")
				require.NoError(t, err, "%d of 5 down", down)
				require.NoError(t, free.Release(t.Context()))
				time.Sleep(50 * time.Millisecond)
			}
		}
		require.NoError(t, lease.Release(t.Context()))
	})
}

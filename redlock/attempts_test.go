package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Attempts counts the requests to all masters, whichever of them is down.
func TestAttemptsCountAllMasters(t *testing.T) {
	for down := range 3 {
		synctest.Test(t, func(t *testing.T) {
			s := newSet(t, 3)
			p, q := s.peer(time.Millisecond), s.peer(time.Millisecond)
			p.warm(t)
			q.warm(t)
			held, err := p.Lock(t.Context(), "n")
			require.NoError(t, err)
			s.minis[down].Stop()
			for range 6 {
				_, err = q.TryLock(soon(t, time.Second), "n")
				var contended *rwlock.AcquireError
				require.ErrorAs(t, err, &contended)
				require.GreaterOrEqual(t, contended.Attempts, 2, "two masters said who holds it; master %d is down", down)
				require.LessOrEqual(t, contended.Attempts, 3)
				time.Sleep(20 * time.Millisecond)
			}
			s.minis[down].Recover()
			require.NoError(t, held.Release(t.Context()))
		})
	}
}

package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A lock whose tokens are used up faster than the clock runs is had again in one round trip, and needs no raise, also
// where the masters' clocks differ: each would cut a block off at its own.
func TestBlocksAheadOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 2 * time.Millisecond
		s := newSet(t, 3)
		for i, m := range s.minis {
			m.Skew(time.Duration(i) * 20 * time.Millisecond)
		}
		p := s.peer(trip / 2)
		count := s.countScripts()
		p.warm(t)
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour)) // it is given back for a new block only
		require.NoError(t, mu.Lock(t.Context()))
		require.NoError(t, mu.Unlock(t.Context()))
		last := mu.Token()
		for range 1_500_000 {
			began := time.Now()
			if err := mu.TryLock(t.Context()); err != nil || time.Since(began) > 2*trip || mu.Token() <= last {
				t.Fatalf("%v after %v, token %d after %d", err, time.Since(began), mu.Token(), last)
			}
			last = mu.Token()
			if err := mu.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ahead := time.Duration(last-fencing.Token(time.Now().UnixMicro())) * time.Microsecond
		require.InDelta(t, 500*time.Millisecond, ahead, float64(100*time.Millisecond), "it has run ahead as far as it may")
		require.Greater(t, count()[scripts.Acquire], 10)
		require.Zero(t, count()[scripts.Raise])
	})
}

package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// What short attempts leave behind lives as long as their requests can, not as long as their TTL.
func TestTombstonesDoNotPileUp(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const attempts = 500
		w.ttl = time.Hour
		w.process().lock("n", rwlock.Write)
		p := w.process()
		p.warmUp()
		size := func() int { return len(w.mini.Miniredis().Dump()) }
		before := size()
		p.link.DelayDir(testredis.ToClient, 6*time.Millisecond)
		for range attempts {
			ctx, cancel := context.WithTimeout(w.ctx, 3*time.Millisecond)
			_, err := p.TryLock(ctx, "n")
			require.Error(w.t, err)
			cancel()
		}
		p.link.Delay(0)
		w.pass(time.Minute)
		for range attempts / 10 { // whoever comes clears up
			_, err := p.TryLock(w.ctx, "n")
			require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		}
		require.Less(w.t, size()-before, 20*100, "bytes left of %d attempts", attempts)
	})
}

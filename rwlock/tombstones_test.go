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
		w.TTL = time.Hour
		w.Process().Take("n", rwlock.Write)
		p := w.Process()
		p.WarmUp()
		size := func() int { return len(w.Mini.Miniredis().Dump()) }
		before := size()
		p.Link.DelayDir(testredis.ToClient, 6*time.Millisecond)
		for range attempts {
			ctx, cancel := context.WithTimeout(w.Ctx, 3*time.Millisecond)
			_, err := p.TryLock(ctx, "n")
			require.Error(w, err)
			cancel()
		}
		p.Link.Delay(0)
		w.Pass(time.Minute)
		for range attempts / 10 { // whoever comes clears up
			_, err := p.TryLock(w.Ctx, "n")
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		}
		require.Less(w, size()-before, 20*100, "bytes left of %d attempts", attempts)
	})
}

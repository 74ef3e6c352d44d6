package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Releases that wait for a master expire while it is away. Those that come after its return are sent as ever.
func TestBackgroundReleasesGoOnAfterAnOutage(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.TTL = time.Second
		p, q := w.Process(), w.Process()
		lease := p.Take("n", rwlock.Write)
		p.Link.Refuse()
		p.Link.Cut()
		require.True(w, rwlock.Indeterminate(lease.Release(w.Ctx)))
		w.Pass(10 * w.TTL)
		p.Link.Restore()
		w.Pass(5 * w.TTL)
		w.Release(p.Take("other", rwlock.Write))

		q.Take("n", rwlock.Write)
		ctx, cancel := context.WithTimeout(w.Ctx, 100*time.Millisecond)
		defer cancel()
		_, err := p.Lock(ctx, "n")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		w.Pass(50 * time.Millisecond)
		require.Empty(w, w.Inspect("n").Waiters, "who gave up is out of the queue")
		start := time.Now()
		require.NoError(w, p.Close())
		require.Less(w, time.Since(start), w.TTL/2)
	})
}

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
		w.ttl = time.Second
		p, q := w.process(), w.process()
		lease := p.lock("n", rwlock.Write)
		p.link.Refuse()
		p.link.Cut()
		require.True(w.t, rwlock.Indeterminate(lease.Release(w.ctx)))
		w.pass(10 * w.ttl)
		p.link.Restore()
		w.pass(5 * w.ttl)
		w.release(p.lock("other", rwlock.Write))

		q.lock("n", rwlock.Write)
		ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
		defer cancel()
		_, err := p.Lock(ctx, "n")
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		w.pass(50 * time.Millisecond)
		require.Empty(w.t, w.inspect("n").Waiters, "who gave up is out of the queue")
		start := time.Now()
		require.NoError(w.t, p.Close())
		require.Less(w.t, time.Since(start), w.ttl/2)
	})
}

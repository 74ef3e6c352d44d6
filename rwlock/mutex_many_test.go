package rwlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// A writer does not wait for a renewal, however many processes linger on a read: it is in within a refresh. The same
// where one lingers behind many that read for themselves and then leave.
func TestAWriterIsInSoonHoweverManyProcessesLinger(t *testing.T) {
	const refresh = time.Second // of a waiter
	for _, n := range []int{10, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				for range n {
					mu := w.process(rwlock.WithTTL(time.Hour)).RWMutex("n", rwlock.WithLinger(time.Hour))
					require.NoError(w.t, mu.RLock(w.ctx))
					require.NoError(w.t, mu.RUnlock(w.ctx))
				}
				began := time.Now()
				lease, err := w.process().Lock(w.ctx, "n")
				require.NoError(w.t, err)
				require.LessOrEqual(w.t, time.Since(began), refresh)
				require.NoError(w.t, lease.Release(w.ctx))
			})
		})
	}
	t.Run("behind others", func(t *testing.T) {
		inFakeTime(t, func(w *world) {
			reading := w.process()
			var leases []*rwlock.Lease
			for range 70 {
				lease, err := reading.RLock(w.ctx, "n")
				require.NoError(w.t, err)
				leases = append(leases, lease)
			}
			time.Sleep(time.Millisecond)
			mu := w.process().RWMutex("n", rwlock.WithLinger(time.Hour))
			require.NoError(w.t, mu.RLock(w.ctx))
			require.NoError(w.t, mu.RUnlock(w.ctx))
			in := make(chan time.Time, 1)
			go func() {
				if lease, err := w.process().Lock(w.ctx, "n"); err == nil {
					in <- time.Now()
					_ = lease.Release(w.ctx)
				}
				close(in)
			}()
			w.untilWaiting("n", 1)
			for _, lease := range leases {
				require.NoError(w.t, lease.Release(w.ctx))
			}
			left := time.Now()
			require.LessOrEqual(w.t, (<-in).Sub(left), refresh)
		})
	})
}

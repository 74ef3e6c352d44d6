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
					mu := w.Process(rwlock.WithTTL(time.Hour)).RWMutex("n", rwlock.WithLinger(time.Hour))
					require.NoError(w, mu.RLock(w.Ctx))
					require.NoError(w, mu.RUnlock(w.Ctx))
				}
				began := time.Now()
				lease, err := w.Process().Lock(w.Ctx, "n")
				require.NoError(w, err)
				require.LessOrEqual(w, time.Since(began), refresh)
				require.NoError(w, lease.Release(w.Ctx))
			})
		})
	}
	t.Run("behind others", func(t *testing.T) {
		inFakeTime(t, func(w *world) {
			reading := w.Process()
			var leases []*rwlock.Lease
			for range 70 {
				lease, err := reading.RLock(w.Ctx, "n")
				require.NoError(w, err)
				leases = append(leases, lease)
			}
			time.Sleep(time.Millisecond)
			mu := w.Process().RWMutex("n", rwlock.WithLinger(time.Hour))
			require.NoError(w, mu.RLock(w.Ctx))
			require.NoError(w, mu.RUnlock(w.Ctx))
			in := make(chan time.Time, 1)
			go func() {
				if lease, err := w.Process().Lock(w.Ctx, "n"); err == nil {
					in <- time.Now()
					_ = lease.Release(w.Ctx)
				}
				close(in)
			}()
			w.UntilWaiting("n", 1)
			for _, lease := range leases {
				require.NoError(w, lease.Release(w.Ctx))
			}
			left := time.Now()
			require.LessOrEqual(w, (<-in).Sub(left), refresh)
		})
	})
}

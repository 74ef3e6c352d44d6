package rwlock_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A parent context that lives as long as the process keeps nothing of the leases that were taken under it.
func TestLeaseContextsLeaveNothingInTheirParent(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		parent, cancel := context.WithCancel(w.Ctx)
		defer cancel()
		heap := func() uint64 {
			w.Pass(0)
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		run := func(n int) {
			for range n {
				require.NoError(w, p.Do(parent, "a", func(context.Context) error { return nil }))
			}
		}
		run(200)
		before := heap()
		run(2000)
		require.Less(w, int64(heap())-int64(before), int64(2000*300), "bytes kept for 2000 leases")
	})
}

package rwlock_test

import (
	"context"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
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

// countGoroutines returns a function that counts the goroutines which the test has begun since, directly and
// indirectly, whatever other tests do meanwhile: goroutines inherit the labels of those that begin them.
func countGoroutines(t *testing.T) (begun func() int) {
	t.Helper()
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
	t.Cleanup(func() { pprof.SetGoroutineLabels(context.Background()) })
	label := strconv.Quote("test") + ":" + strconv.Quote(t.Name())
	return func() int {
		t.Helper()
		var profile strings.Builder
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
		// "3 @ 0x47b0ee ..." is three goroutines with this stack, "# labels: {...}" follows.
		sum, alike := -1, 0 // without the test's own
		for line := range strings.Lines(profile.String()) {
			if n, _, found := strings.Cut(line, " @ "); found {
				var err error
				alike, err = strconv.Atoi(n)
				require.NoError(t, err)
			}
			if strings.HasPrefix(line, "# labels: ") && strings.Contains(line, label) {
				sum += alike
			}
		}
		return sum
	}
}

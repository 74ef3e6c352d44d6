package explore_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/lab/tools/noise/explore"
	"github.com/seed74116694/fencelock/lab/tools/noise/schedulenoise"
)

// Two goroutines with m and n steps have (m+n)!/(m!n!) schedules: every one is run, and none twice.
func TestAllSchedulesAreRun(t *testing.T) {
	for _, c := range []struct{ goroutines, points, interruptions, schedules int }{
		{1, 5, explore.Unbounded, 1},
		{2, 0, explore.Unbounded, 2},
		{2, 1, explore.Unbounded, 6},
		{2, 3, explore.Unbounded, 70},
		{3, 1, explore.Unbounded, 90},
		{3, 2, explore.Unbounded, 1680},
		{2, 3, 0, 2},
		{2, 3, 1, 8},
	} {
		seen := map[string]bool{}
		n := explore.Run(t, c.interruptions, func(*testing.T) explore.World {
			var order []byte
			w := explore.World{Check: func() error { seen[string(order)] = true; return nil }}
			for g := range c.goroutines {
				w.Goroutines = append(w.Goroutines, func() {
					for range c.points {
						order = append(order, byte('a'+g))
						schedulenoise.Point()
					}
					order = append(order, byte('a'+g))
				})
			}
			return w
		})
		require.Equal(t, c.schedules, n, "%+v", c)
		require.Len(t, seen, n, "%+v", c)
	}
}

// A lock keeps goroutines apart, and a signal lets one go on.
func TestGoroutinesThatWait(t *testing.T) {
	runs := explore.Run(t, explore.Unbounded, func(*testing.T) explore.World {
		var mu explore.Mutex
		var inside, most atomic.Int32
		signals := make(chan struct{}, 2)
		body := func() {
			mu.Lock()
			most.Store(max(most.Load(), inside.Add(1)))
			schedulenoise.Point()
			inside.Add(-1)
			mu.Unlock()
			signals <- struct{}{}
		}
		wait := func() {
			<-signals
			schedulenoise.Point()
			<-signals
		}
		return explore.World{Goroutines: []func(){body, body, wait}, Check: func() error {
			if most.Load() != 1 {
				return errors.New("both are inside")
			}
			return nil
		}}
	})
	require.Greater(t, runs, 50)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

//go:build explore

package scenarios_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/lab/tools/noise/explore"
	"github.com/seed74116694/fencelock/lab/tools/noise/schedulenoise"
)

// Each call that was deferred under the mutex of a lease runs once, in the order of deferral, before its Unlock
// returns, and not under the mutex: it takes the mutex itself.
func TestDeferredCalls(t *testing.T) {
	for _, c := range []struct{ goroutines, interruptions int }{{2, 3}, {3, 2}} {
		n := explore.Run(t, c.interruptions, func(*testing.T) explore.World {
			var g engine.Guard
			ran := make([][]int, c.goroutines)
			var early error
			w := explore.World{Check: func() error {
				for i, calls := range ran {
					if !slices.Equal(calls, []int{0, 1}) {
						return fmt.Errorf("of goroutine %d ran the calls %v", i, calls)
					}
				}
				return early
			}}
			for i := range c.goroutines {
				w.Goroutines = append(w.Goroutines, func() {
					g.Lock()
					for call := range 2 {
						g.AfterUnlock(func() {
							ran[i] = append(ran[i], call)
							if call == 0 { // takes the mutex itself
								g.Lock()
								schedulenoise.Point()
								g.Unlock()
							}
						})
					}
					g.Unlock()
					if len(ran[i]) < 2 {
						early = fmt.Errorf("Unlock of goroutine %d returned after the calls %v", i, ran[i])
					}
				})
			}
			return w
		})
		t.Logf("%d goroutines: %d schedules", c.goroutines, n)
	}
}

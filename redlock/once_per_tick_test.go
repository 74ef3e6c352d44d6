package redlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// At each tick processes whose clocks agree ask at the same moment. Each gets the master that is next to it, and then
// all are refused. The recipe of docs/integrations.md asks again for a moment: no tick is missed, and none runs twice.
func TestOncePerTick(t *testing.T) {
	for _, masters := range []int{3, 5} {
		inFakeTime(t, masters, func(w *world) {
			require.Equal(w, map[int32]int{0: ticks}, runsPerTick(w, 0))
			require.Equal(w, map[int32]int{1: ticks}, runsPerTick(w, 300*time.Millisecond))
		})
	}
}

const ticks = 10

// runsPerTick has a process next to each master ask for so long at each tick, and counts ticks by their runs.
func runsPerTick(w *world, asks time.Duration) map[int32]int {
	processes := make([]*process, len(w.Minis))
	for i := range processes {
		p := w.Process(rwlock.WithTTL(time.Second))
		p.Section("warm-up")
		for _, link := range p.Links {
			link.Delay(5 * time.Millisecond)
		}
		p.Links[i].Delay(time.Millisecond)
		processes[i] = p
	}
	counts := make(map[int32]int)
	for range ticks {
		var runs atomic.Int32
		var all sync.WaitGroup
		for _, p := range processes {
			all.Go(func() {
				for begun := time.Now(); ; time.Sleep(10*time.Millisecond + rand.N(20*time.Millisecond)) {
					ran, err := p.TryDo(w.Ctx, "job", func(context.Context) error { runs.Add(1); return nil },
						rwlock.WithMinHold(time.Second))
					if err != nil {
						w.Error(err)
					}
					if ran || time.Since(begun) >= asks {
						return
					}
				}
			})
		}
		all.Wait()
		counts[runs.Load()]++
		time.Sleep(2 * time.Second)
	}
	return counts
}

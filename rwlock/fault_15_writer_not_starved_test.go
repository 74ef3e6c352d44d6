package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F15: a waiting writer holds new readers back, so that steady readers never starve it.

// Four processes read all the time, each for a second and all of them overlapping: without the rule there would be no
// moment without a reader. A writer gets in when the readers that came before it have gone.
func TestF15WriterAmongSteadyReaders(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const reading, readers = time.Second, 4
		over := make(chan struct{})
		for i := range readers {
			p := w.Process()
			go func() {
				time.Sleep(reading / readers * time.Duration(i))
				for {
					select {
					case <-over:
						return
					default:
					}
					lease, err := p.RLock(w.Ctx, "n")
					if err != nil {
						w.Error(err)
						return
					}
					time.Sleep(reading)
					if err := lease.Release(w.Ctx); err != nil {
						w.Error(err)
						return
					}
				}
			}()
		}
		w.Pass(10 * reading)
		require.Len(w, w.Inspect("n").Holders, readers, "they read steadily")
		writer := w.Process()
		for range 10 {
			start := time.Now()
			lease := writer.Take("n", rwlock.Write)
			require.LessOrEqual(w, time.Since(start), reading, "the readers that came before it, and no other")
			require.Len(w, w.Inspect("n").Holders, 1)
			w.Release(lease)
			w.Pass(2 * reading)
		}
		close(over)
		w.Pass(3 * reading)
		w.OnlyTokensLeft()
	})
}

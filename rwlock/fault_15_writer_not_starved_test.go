package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F15: a waiting writer holds new readers back, so that steady readers never starve it.

func TestF15WaitingWriterHoldsNewReadersBack(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		first, second := p.lock("n", rwlock.Read), q.lock("n", rwlock.Read)
		writer := w.process().queue("n", rwlock.Write)
		_, err := p.TryRLock(w.ctx, "n")
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired, "a try does not pass a writer either")
		late := q.queue("n", rwlock.Read)

		w.release(first)
		require.True(w.t, writer.isWaiting())
		require.True(w.t, late.isWaiting())
		w.release(second)
		held := writer.granted()
		require.True(w.t, late.isWaiting())
		w.release(held)
		w.release(late.granted())
		w.onlyTokensLeft()
	})
}

// Four processes read all the time, each for a second and all of them overlapping: without the rule there would be no
// moment without a reader. A writer gets in when the readers that came before it have gone.
func TestF15WriterAmongSteadyReaders(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const reading, readers = time.Second, 4
		over := make(chan struct{})
		for i := range readers {
			p := w.process()
			go func() {
				time.Sleep(reading / readers * time.Duration(i))
				for {
					select {
					case <-over:
						return
					default:
					}
					lease, err := p.RLock(w.ctx, "n")
					if err != nil {
						w.t.Error(err)
						return
					}
					time.Sleep(reading)
					if err := lease.Release(w.ctx); err != nil {
						w.t.Error(err)
						return
					}
				}
			}()
		}
		w.pass(10 * reading)
		require.Len(w.t, w.inspect("n").Holders, readers, "they read steadily")
		writer := w.process()
		for range 10 {
			start := time.Now()
			lease := writer.lock("n", rwlock.Write)
			require.LessOrEqual(w.t, time.Since(start), reading, "the readers that came before it, and no other")
			require.Len(w.t, w.inspect("n").Holders, 1)
			w.release(lease)
			w.pass(2 * reading)
		}
		close(over)
		w.pass(3 * reading)
		w.onlyTokensLeft()
	})
}

// A writer that gives up waiting lets the readers behind it in at once.
func TestF15WriterThatGivesUpHoldsNobodyBack(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		first := p.lock("n", rwlock.Read)
		_, err := w.process().Lock(w.ctx, "n", rwlock.WithMaxWait(w.short/2))
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		second := q.lock("n", rwlock.Read)
		w.release(first, second)
		w.onlyTokensLeft()
	})
}

package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F7: a reader's own expiry is the only truth, never a bare counter.

func TestF07CrashedReaderLetsNoWriterInBesideALiveOne(t *testing.T) {
	inFakeTime(t, func(w *world) {
		crashed, live, p := w.process(), w.process(), w.process()
		crashed.lock("n", rwlock.Read)
		crashed.lock("n", rwlock.Read)
		reader := live.lock("n", rwlock.Read)
		crashed.die()
		writer := p.queue("n", rwlock.Write)
		for range 5 {
			w.pass(w.ttl)
			require.NoError(w.t, reader.Err())
			require.True(w.t, writer.isWaiting(), "a reader and a writer are both in")
			require.ErrorIs(w.t, w.observer.acquireOnce("n"), rwlock.ErrNotAcquired)
		}
		require.Len(w.t, w.inspect("n").Holders, 1, "the crashed ones are gone")
		released := time.Now()
		w.release(reader)
		w.release(writer.granted())
		require.Equal(w.t, released, writer.at, "only the live reader was in the way")
		w.onlyTokensLeft()
	})
}

// The reader was not dead but slow: what it does after its expiry counts nobody else down.
func TestF07ReaderThatComesBackCountsNobodyDown(t *testing.T) {
	inFakeTime(t, func(w *world) {
		slow, live, p := w.process(), w.process(), w.process()
		late := slow.lock("n", rwlock.Read)
		reader := live.lock("n", rwlock.Read)
		slow.link.Hold(testredis.Both)
		w.untilOver(late)
		w.pass(time.Second)
		writer := p.queue("n", rwlock.Write)
		slow.link.Restore()
		require.ErrorIs(w.t, late.Release(w.ctx), rwlock.ErrLost)
		w.pass(3 * w.ttl)
		require.NoError(w.t, reader.Err())
		require.True(w.t, writer.isWaiting())
		require.Len(w.t, w.inspect("n").Holders, 1)
		w.release(reader)
		w.release(writer.granted())
		w.pass(w.ttl)
		w.onlyTokensLeft()
	})
}

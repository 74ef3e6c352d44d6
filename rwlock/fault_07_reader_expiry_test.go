package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F7: a reader's own expiry is the only truth, never a bare counter.

func TestF07CrashedReaderLetsNoWriterInBesideALiveOne(t *testing.T) {
	inFakeTime(t, func(w *world) {
		crashed, live, p := w.Process(), w.Process(), w.Process()
		crashed.Take("n", rwlock.Read)
		crashed.Take("n", rwlock.Read)
		reader := live.Take("n", rwlock.Read)
		crashed.Die()
		writer := p.Queue("n", rwlock.Write)
		for range 5 {
			w.Pass(w.TTL)
			require.NoError(w, reader.Err())
			require.True(w, writer.IsWaiting(), "a reader and a writer are both in")
			require.ErrorIs(w, w.Observer().TryOnce("n"), rwlock.ErrNotAcquired)
		}
		require.Len(w, w.Inspect("n").Holders, 1, "the crashed ones are gone")
		released := time.Now()
		w.Release(reader)
		w.Release(writer.Granted())
		require.Equal(w, released, writer.At, "only the live reader was in the way")
		w.OnlyTokensLeft()
	})
}

// The reader was not dead but slow: what it does after its expiry counts nobody else down.
func TestF07ReaderThatComesBackCountsNobodyDown(t *testing.T) {
	inFakeTime(t, func(w *world) {
		slow, live, p := w.Process(), w.Process(), w.Process()
		late := slow.Take("n", rwlock.Read)
		reader := live.Take("n", rwlock.Read)
		slow.Link.Hold(testredis.Both)
		w.UntilOver(late)
		w.Pass(time.Second)
		writer := p.Queue("n", rwlock.Write)
		slow.Link.Restore()
		require.ErrorIs(w, late.Release(w.Ctx), rwlock.ErrLost)
		w.Pass(3 * w.TTL)
		require.NoError(w, reader.Err())
		require.True(w, writer.IsWaiting())
		require.Len(w, w.Inspect("n").Holders, 1)
		w.Release(reader)
		w.Release(writer.Granted())
		w.Pass(w.TTL)
		w.OnlyTokensLeft()
	})
}

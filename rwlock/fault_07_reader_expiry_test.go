package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		w.Release(writer.GrantedAfter(reader))
		require.Equal(w, released, writer.At, "only the live reader was in the way")
		w.OnlyTokensLeft()
	})
}

package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F8: per-reader expiry, purged by server time in every script.

func TestF08CrashedReaderBlocksWritersForItsOwnTTLAlone(t *testing.T) {
	// The live reader leaves before, about and after the expiry of the crashed one.
	for _, stay := range []time.Duration{
		0, 5 * time.Second, 9990 * time.Millisecond, 10 * time.Second, 10010 * time.Millisecond, 35 * time.Second,
	} {
		inFakeTime(t, func(w *world) {
			crashed, live, p := w.Process(), w.Process(), w.Process()
			reader := live.Take("n", rwlock.Read)
			crash := time.Now()
			crashed.Take("n", rwlock.Read)
			crashed.Die()
			writer := p.Queue("n", rwlock.Write)
			w.Pass(stay - time.Since(crash))
			w.Release(writer.GrantedAfter(reader))
			require.GreaterOrEqual(w, writer.At.Sub(crash), min(stay, w.TTL))
			require.LessOrEqual(w, writer.At.Sub(crash), max(stay, w.TTL)+3*time.Millisecond, "the live reader stayed %v", stay)
			w.OnlyTokensLeft()
		})
	}
}

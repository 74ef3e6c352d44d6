package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
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
			w.Release(reader)
			w.Release(writer.Granted())
			require.GreaterOrEqual(w, writer.At.Sub(crash), min(stay, w.TTL))
			require.LessOrEqual(w, writer.At.Sub(crash), max(stay, w.TTL)+3*time.Millisecond,
				"the live reader stayed %v", stay)
			w.OnlyTokensLeft()
		})
	}
}

// Readers that come and go and renew all the time keep a crashed one alive no longer.
func TestF08CrashedReaderIsGoneFromABusyLock(t *testing.T) {
	everywhere(t, func(w *world) {
		crashed, live := w.Process(), w.Process()
		dead := crashed.Take("n", rwlock.Read, rwlock.WithTTL(w.Short))
		crashed.Die()
		crash := time.Now()
		gone := func() bool {
			for _, h := range w.Inspect("n").Holders {
				if h.Owner == dead.Owner() {
					return false
				}
			}
			return true
		}
		kept := live.Take("n", rwlock.Read)
		for !gone() {
			w.RequireLess(time.Since(crash), w.Short*3/2, "a crashed reader is gone after its TTL")
			require.Less(w, time.Since(crash), testkit.Patience)
			next := live.Take("n", rwlock.Read)
			require.NoError(w, kept.Renew(w.Ctx))
			w.Release(kept)
			kept = next
			time.Sleep(w.Short / 50)
		}
		writer := live.Queue("n", rwlock.Write)
		w.Release(kept)
		w.Release(writer.Granted())
		w.OnlyTokensLeft()
	})
}

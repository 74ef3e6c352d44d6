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
			crashed, live, p := w.process(), w.process(), w.process()
			reader := live.lock("n", rwlock.Read)
			crash := time.Now()
			crashed.lock("n", rwlock.Read)
			crashed.die()
			writer := p.queue("n", rwlock.Write)
			w.pass(stay - time.Since(crash))
			w.release(reader)
			w.release(writer.granted())
			require.GreaterOrEqual(w.t, writer.at.Sub(crash), min(stay, w.ttl))
			require.LessOrEqual(w.t, writer.at.Sub(crash), max(stay, w.ttl)+3*time.Millisecond,
				"the live reader stayed %v", stay)
			w.onlyTokensLeft()
		})
	}
}

// Readers that come and go and renew all the time keep a crashed one alive no longer.
func TestF08CrashedReaderIsGoneFromABusyLock(t *testing.T) {
	everywhere(t, func(w *world) {
		crashed, live := w.process(), w.process()
		dead := crashed.lock("n", rwlock.Read, rwlock.WithTTL(w.short))
		crashed.die()
		crash := time.Now()
		gone := func() bool {
			for _, h := range w.inspect("n").Holders {
				if h.Owner == dead.Owner() {
					return false
				}
			}
			return true
		}
		kept := live.lock("n", rwlock.Read)
		for !gone() {
			w.requireLess(time.Since(crash), w.short*3/2, "a crashed reader is gone after its TTL")
			require.Less(w.t, time.Since(crash), patience)
			next := live.lock("n", rwlock.Read)
			require.NoError(w.t, kept.Renew(w.ctx))
			w.release(kept)
			kept = next
			time.Sleep(w.short / 50)
		}
		writer := live.queue("n", rwlock.Write)
		w.release(kept)
		w.release(writer.granted())
		w.onlyTokensLeft()
	})
}

package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// The events that wait for a hook or a log handler are bounded. Those that find no room are counted.
func TestEventsThatOverflowAreCounted(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(newSink(w).trace())
		const sections = 20_000
		for range sections {
			w.Release(p.Take("n", rwlock.Write))
			if p.Stats().EventsDropped > 0 {
				break
			}
		}
		require.Positive(w, p.Stats().EventsDropped, "after %d sections with a hook that never returns", sections)
		require.Zero(w, w.Process().Stats().EventsDropped)
	})
}

package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// One of three masters stands still. The sections that go on without it leave it nothing to do afterwards: their
// requests have not left, so there is nothing to release.
func TestSectionsBesideAFrozenMasterLeaveItNothing(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessOver(testkit.Net{Way: time.Millisecond, Tuned: true}, rwlock.WithTTL(time.Hour))
		p.WarmUp()
		w.Minis[2].Freeze()
		w.Minis[2].ResetCalls()
		const sections = 500
		for range sections {
			p.Section("x")
		}
		w.Minis[2].Thaw()
		w.Pass(time.Minute)
		require.Empty(w, w.Inspect("x").Masters[2].Holders)
		require.Less(w, w.ScriptCalls()[2], sections/5)
	})
}

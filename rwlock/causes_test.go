package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A server that did not answer in time is told from all other failures by its type.
func TestNodeTimeoutHasAType(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		p.WarmUp()
		p.Link.Hold(testredis.Both)
		_, err := p.TryLock(w.Ctx, "n")
		var late *rwlock.NoReplyError
		require.ErrorAs(w, err, &late)
		require.Positive(w, late.After)
		require.LessOrEqual(w, late.After, w.TTL)
		p.Link.Restore()
	})
}

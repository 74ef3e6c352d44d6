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
		p := w.process()
		p.warmUp()
		p.link.Hold(testredis.Both)
		_, err := p.TryLock(w.ctx, "n")
		var late *rwlock.NoReplyError
		require.ErrorAs(w.t, err, &late)
		require.Positive(w.t, late.After)
		require.LessOrEqual(w.t, late.After, w.ttl)
		p.link.Restore()
	})
}

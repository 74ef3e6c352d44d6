package reentrant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// A read that joins a write counts on the write hold, as it does in one process: its fence is that of a writer, and
// what nests in it may write.
func TestAReadThatJoinsAWriteIsAWrite(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		first, second := w.process(), w.process()
		ctx, owner := owned(t)
		there := elsewhere(t, owner)
		outer := must(t)(first.Lock(ctx, "a"))
		joined := must(t)(second.RLock(there, "a"))
		require.Equal(t, rwlock.Write, joined.Lease().Mode())
		fence, _ := fencing.FromContext(joined.Context(there), "a")
		require.Equal(t, outer.Lease().Fence(), fence)
		nested := must(t)(second.Lock(there, "a"))
		require.Equal(t, 2, nested.Depth())
		require.NoError(t, nested.Release(there))
		require.NoError(t, joined.Release(there))
		require.NoError(t, outer.Release(ctx))
	})
}

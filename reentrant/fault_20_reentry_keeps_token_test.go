package reentrant_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
)

// F20: a nested acquisition has the token of the outer one. A new token, once used on the storage, would shut the outer
// section out of it.
func TestFault20ReentryKeepsTheToken(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		first, second := w.process(), w.process()
		ctx, owner := owned(t)
		there := elsewhere(t, owner)
		var storage fencing.Watermark
		write := func(h *reentrant.Hold) error {
			return storage.Do(ctx, h.Lease().Fence(), func(context.Context) error { return nil })
		}

		outer := must(t)(first.Lock(ctx, "a"))
		issued := first.inspect(t, "a").Token
		require.Equal(t, issued, outer.Token())
		for _, process := range []*process{first, second} {
			for range 3 {
				nested := must(t)(process.Lock(there, "a"))
				require.Equal(t, issued, nested.Token())
				require.NoError(t, write(nested))
				require.NoError(t, write(outer))
				require.Equal(t, issued, first.inspect(t, "a").Token, "none was issued")
				require.NoError(t, nested.Release(there))
			}
		}
		require.NoError(t, outer.Release(ctx))

		next := must(t)(first.Lock(ctx, "a"))
		require.Greater(t, next.Token(), issued)
		require.NoError(t, write(next))
		require.ErrorIs(t, write(outer), fencing.ErrStale)
		require.NoError(t, next.Release(ctx))
	})
}

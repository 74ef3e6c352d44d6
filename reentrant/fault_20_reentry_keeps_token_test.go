package reentrant_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
)

// F20: a nested acquisition has the token of the outer one, since a new one would shut that out of the storage.
func TestFault20ReentryKeepsTheToken(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, there := ownedTwice(w)
		var storage fencing.Watermark
		write := func(h *reentrant.Hold) error {
			return storage.Do(ctx, h.Lease().Fence(), func(context.Context) error { return nil })
		}

		outer := must(w)(first.Lock(ctx, "a"))
		issued := first.inspect("a").Token
		require.Equal(w, issued, outer.Token())
		for _, process := range []*process{first, second} {
			for range 3 {
				nested := must(w)(process.Lock(there, "a"))
				require.Equal(w, issued, nested.Token())
				require.NoError(w, write(nested))
				require.NoError(w, write(outer))
				require.Equal(w, issued, first.inspect("a").Token, "none was issued")
				require.NoError(w, nested.Release(there))
			}
		}
		require.NoError(w, outer.Release(ctx))

		next := must(w)(first.Lock(ctx, "a"))
		require.Greater(w, next.Token(), issued)
		require.NoError(w, write(next))
		require.ErrorIs(w, write(outer), fencing.ErrStale)
		require.NoError(w, next.Release(ctx))
	})
}

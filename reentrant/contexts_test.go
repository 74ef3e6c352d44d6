package reentrant_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// A nested hold may be held for long, and each request that it serves gets a context of it. A request that has ended
// leaves nothing behind, and those that end together share one end.
func TestContextsOfANestedHoldDoNotPileUp(t *testing.T) {
	inFakeTime(t, func(w *world) {
		l := start(w)
		ctx, _ := owned(w)
		outer := must(w)(l.Lock(ctx, "n"))
		hold := must(w)(l.RLock(outer.Context(ctx), "n"))
		inner := must(w)(l.Lock(hold.Context(ctx), "n"))
		for range 1000 {
			request, cancel := context.WithTimeout(ctx, time.Hour)
			require.NoError(w, hold.Context(request).Err())
			cancel()
			require.NoError(w, hold.Context(ctx).Err())
			require.NoError(w, hold.Context(context.Background()).Err())
		}
		w.Settle()
		require.Equal(w, 2, reentrant.Ends(hold), "of the test's context, and of those without an end")

		of, within := hold.Context(ctx), inner.Context(ctx)
		require.NoError(w, inner.Release(ctx))
		require.ErrorIs(w, context.Cause(within), rwlock.ErrReleased)
		require.EqualError(w, context.Cause(inner.Context(ctx)), `rwlock: lease released: lock "n"`)
		require.NoError(w, of.Err())
		require.NoError(w, hold.Release(ctx))
		require.ErrorIs(w, context.Cause(of), rwlock.ErrReleased)
		require.NoError(w, outer.Release(ctx))
	})
}

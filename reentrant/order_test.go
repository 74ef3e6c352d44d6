package reentrant_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestReleasesAreLastInFirstOut(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		ctx, _ := owned(w)
		var holds []*reentrant.Hold
		for range 3 {
			holds = append(holds, must(w)(p.Lock(ctx, "a")))
		}
		for i, early := range holds[:2] {
			err := early.Release(ctx)
			require.ErrorIs(w, err, reentrant.ErrOrder)
			require.EqualError(w, err, fmt.Sprintf(`reentrant: hold released out of order: lock "a": it is hold %d of 3`, i+1))
			require.NoError(w, early.Lease().Err())
			require.Len(w, p.inspect("a").Holders, 1)
		}
		sent := scriptsSent(w)
		for _, h := range slices.Backward(holds) {
			require.NoError(w, h.Lease().Err())
			require.NoError(w, h.Release(ctx))
			require.NoError(w, h.Release(ctx), "again")
		}
		require.Equal(w, 1, scriptsSent(w)-sent, "only the last goes to the master")
		require.ErrorIs(w, holds[0].Lease().Err(), rwlock.ErrReleased)
		require.Empty(w, p.inspect("a").Holders)

		require.NoError(w, holds[0].Release(ctx))
		fresh := must(w)(p.Lock(ctx, "a"))
		require.NoError(w, holds[2].Release(ctx), "an old hold is no part of the new section")
		require.NoError(w, fresh.Lease().Err())
		require.NoError(w, fresh.Release(ctx))
	})
}

func TestTheDepthHasALimit(t *testing.T) {
	everywhere(t, func(w *world) {
		remote := start(w).remote
		for name, tt := range map[string]struct {
			locker *reentrant.Locker
			limit  int
		}{
			"by default": {reentrant.New(remote.Locker), 64},
			"one":        {reentrant.New(remote.Locker, reentrant.WithMaxDepth(1)), 1},
			"three":      {reentrant.New(remote.Locker, reentrant.WithMaxDepth(3)), 3},
		} {
			ctx, _ := owned(w)
			var holds []*reentrant.Hold
			for depth := 1; depth <= tt.limit; depth++ {
				h := must(w)(tt.locker.Lock(ctx, name))
				require.Equal(w, depth, h.Depth(), name)
				holds = append(holds, h)
			}
			for range 2 {
				h, err := tt.locker.RLock(ctx, name)
				require.Nil(w, h, name)
				require.ErrorIs(w, err, reentrant.ErrDepth, name)
				require.EqualError(w, err, fmt.Sprintf(
					"reentrant: nested too deep: lock %q is held %d times, the limit of WithMaxDepth", name, tt.limit))
			}
			require.NoError(w, must(w)(tt.locker.Lock(reentrant.Fork(ctx), "another "+name)).Release(ctx))
			require.NoError(w, holds[len(holds)-1].Release(ctx))
			if last := len(holds) - 1; last > 0 {
				again := must(w)(tt.locker.Lock(ctx, name))
				require.Equal(w, tt.limit, again.Depth(), name)
				require.NoError(w, again.Release(ctx))
				for _, h := range slices.Backward(holds[:last]) {
					require.NoError(w, h.Release(ctx))
				}
			}
		}
	})
}

// A section of the plain locker knows of no owner: an owner's first acquisition inside it would wait for it for ever.
// So would one through a second reentrant locker, which does not know of the first one's holds.
func TestAnAcquisitionThatWouldWaitForItselfIsRefused(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		ctx, _ := owned(w)
		second := reentrant.New(p.remote.Locker)
		type doing = func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
		for _, c := range []struct {
			outer, inner doing
			advice       string // whoever nests with package reentrant is not told to
		}{
			{p.remote.Do, p.remote.Do, "; nest with package reentrant"},
			{p.remote.Do, p.Do, "; take that one through package reentrant too"},
			{p.Do, p.remote.RDo, "; take this one through its reentrant.Locker too"},
			{p.Do, second.Do, "; take both through one reentrant.Locker"},
		} {
			err := c.outer(ctx, "a", func(ctx context.Context) error {
				return c.inner(ctx, "a", func(context.Context) error { return nil })
			})
			require.ErrorIs(w, err, rwlock.ErrNested)
			require.ErrorContains(w, err, "the section that ctx comes from"+c.advice)
		}
		require.Empty(w, p.inspect("a").Holders)
	})
}

// A fork runs beside its parent, so it waits for the parent's section like anybody else; and another process joins it.
func TestAForkWaitsForItsParent(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := start(w), start(w)
		ctx, owner := owned(w)
		entered := make(chan error)
		require.NoError(w, p.Do(ctx, "a", func(ctx context.Context) error {
			fork := reentrant.Fork(context.WithoutCancel(ctx))
			go func() { entered <- p.Do(fork, "a", func(context.Context) error { return nil }) }()
			w.UntilWaiting("a", 1)
			return q.Do(reentrant.AsOwner(ctx, owner), "a", func(context.Context) error { return nil })
		}))
		require.NoError(w, <-entered)
	})
}

package reentrant_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestReleasesAreLastInFirstOut(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, _ := owned(t)
		var holds []*reentrant.Hold
		for range 3 {
			holds = append(holds, must(t)(p.Lock(ctx, "a")))
		}
		for _, early := range holds[:2] {
			err := early.Release(ctx)
			require.ErrorIs(t, err, reentrant.ErrOrder)
			require.ErrorContains(t, err, `reentrant: `)
			require.ErrorContains(t, err, `"a"`)
			require.NoError(t, early.Lease().Err())
			require.Len(t, p.inspect(t, "a").Holders, 1)
		}
		sent := w.scripts()
		for _, h := range slices.Backward(holds) {
			require.NoError(t, h.Lease().Err())
			require.NoError(t, h.Release(ctx))
			require.NoError(t, h.Release(ctx), "again")
		}
		require.Equal(t, 1, w.scripts()-sent, "only the last goes to the master")
		require.ErrorIs(t, holds[0].Lease().Err(), rwlock.ErrReleased)
		require.Empty(t, p.inspect(t, "a").Holders)

		require.NoError(t, holds[0].Release(ctx))
		fresh := must(t)(p.Lock(ctx, "a"))
		require.NoError(t, holds[2].Release(ctx), "an old hold is no part of the new section")
		require.NoError(t, fresh.Lease().Err())
		require.NoError(t, fresh.Release(ctx))
	})
}

func TestTheOrderIsThatOfOneLock(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, _ := owned(t)
		a := must(t)(p.Lock(ctx, "a"))
		b := must(t)(p.Lock(ctx, "b"))
		require.Equal(t, 1, b.Depth())
		require.NoError(t, a.Release(ctx))
		require.NoError(t, b.Release(ctx))
	})
}

func TestReleaseOfNil(t *testing.T) {
	var h *reentrant.Hold
	require.NoError(t, h.Release(context.Background()))
}

func TestReleaseIgnoresAnEndedContext(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, _ := owned(t)
		ended, cancel := context.WithCancel(ctx)
		outer := must(t)(p.Lock(ended, "a"))
		nested := must(t)(p.Lock(ended, "a"))
		cancel()
		require.NoError(t, nested.Release(ended))
		require.NoError(t, outer.Release(ended))
		require.Empty(t, p.inspect(t, "a").Holders)
	})
}

func TestTheDepthHasALimit(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		remote := w.process().remote
		for name, tt := range map[string]struct {
			locker *reentrant.Locker
			limit  int
		}{
			"by default": {reentrant.New(remote), 64},
			"one":        {reentrant.New(remote, reentrant.WithMaxDepth(1)), 1},
			"three":      {reentrant.New(remote, reentrant.WithMaxDepth(3)), 3},
		} {
			ctx, _ := owned(t)
			var holds []*reentrant.Hold
			for depth := 1; depth <= tt.limit; depth++ {
				h := must(t)(tt.locker.Lock(ctx, name))
				require.Equal(t, depth, h.Depth(), name)
				holds = append(holds, h)
			}
			for range 2 {
				h, err := tt.locker.RLock(ctx, name)
				require.Nil(t, h, name)
				require.ErrorIs(t, err, reentrant.ErrDepth, name)
				require.ErrorContains(t, err, `"`+name+`"`)
			}
			require.NoError(t, must(t)(tt.locker.Lock(reentrant.Fork(ctx), "another "+name)).Release(ctx))
			require.NoError(t, holds[len(holds)-1].Release(ctx))
			if last := len(holds) - 1; last > 0 {
				again := must(t)(tt.locker.Lock(ctx, name))
				require.Equal(t, tt.limit, again.Depth(), name)
				require.NoError(t, again.Release(ctx))
				for _, h := range slices.Backward(holds[:last]) {
					require.NoError(t, h.Release(ctx))
				}
			}
		}
	})
}

func TestTheDepthErrorNamesLockAndLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, _ *testredis.Mini) {
		l := reentrant.New(w.process().remote, reentrant.WithMaxDepth(2))
		ctx, _ := owned(t)
		outer, nested := must(t)(l.Lock(ctx, "orders")), must(t)(l.Lock(ctx, "orders"))
		_, err := l.Lock(ctx, "orders")
		require.EqualError(t, err, `reentrant: nested too deep: lock "orders" is held 2 times, the limit of WithMaxDepth`)
		require.EqualError(t, outer.Release(ctx), `reentrant: hold released out of order: lock "orders": it is hold 1 of 2`)
		require.NoError(t, nested.Release(ctx))
		require.NoError(t, outer.Release(ctx))
	})
}

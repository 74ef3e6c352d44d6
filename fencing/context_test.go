package fencing_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

func TestContextInnermostWins(t *testing.T) {
	outer := fencing.NewContext(t.Context(), write("a", 9))
	outer = fencing.NewContext(outer, read("b", 2))
	inner := fencing.NewContext(outer, read("a", 3))

	got, ok := fencing.FromContext(inner, "a")
	require.True(t, ok)
	require.Equal(t, read("a", 3), got)
	require.Equal(t,
		[]fencing.Fence{read("a", 3), read("b", 2)},
		slices.Collect(fencing.All(inner)))

	require.Equal(t,
		[]fencing.Fence{read("b", 2), write("a", 9)},
		slices.Collect(fencing.All(outer)), "the outer context stays as it was")
}

func TestContextWithout(t *testing.T) {
	ctx := fencing.NewContext(t.Context(), read("a", 1))
	_, ok := fencing.FromContext(ctx, "b")
	require.False(t, ok)
	_, err := fencing.Require(ctx, "b")
	require.ErrorIs(t, err, fencing.ErrMissing)
	require.ErrorContains(t, err, `"b"`)
	require.Empty(t, slices.Collect(fencing.All(context.Background())))

	got, err := fencing.Require(ctx, "a")
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Token)
}

func TestAllStops(t *testing.T) {
	ctx := fencing.NewContext(t.Context(), read("a", 1))
	ctx = fencing.NewContext(ctx, read("b", 2))
	for f := range fencing.All(ctx) {
		require.Equal(t, "b", f.Resource)
		break
	}
}

// upgradable is a hold whose mode and token change, as a lease's do.
type upgradable struct{ fence fencing.Fence }

func (u *upgradable) Fence() fencing.Fence { return u.fence }

func TestSourceContextFollowsTheHold(t *testing.T) {
	hold := &upgradable{read("a", 5)}
	ctx := fencing.NewSourceContext(t.Context(), hold)
	hold.fence = write("a", 6)

	got, ok := fencing.FromContext(ctx, "a")
	require.True(t, ok)
	require.Equal(t, hold.fence, got)
	require.Equal(t, []fencing.Fence{hold.fence}, slices.Collect(fencing.All(ctx)))
}

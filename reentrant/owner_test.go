package reentrant_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func FuzzParseOwner(f *testing.F) {
	owner := reentrant.NewOwner()
	for _, text := range []string{owner.String(), strings.ToLower(owner.String())} {
		parsed, err := reentrant.ParseOwner(text)
		require.NoError(f, err)
		require.Equal(f, owner, parsed)
	}
	for _, seed := range []string{
		"", "0", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"80000000000000000000000000", "00000000000000000000000000", "01ARZ3NDEKTSV4RRFFQ69G5FA\xff",
		owner.String()[1:], owner.String() + "0", strings.Repeat("U", 26), " " + owner.String()[1:],
		strings.Repeat("x", 1<<20),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		owner, err := reentrant.ParseOwner(text)
		if err != nil {
			require.ErrorIs(t, err, rwlock.ErrOption)
			require.Zero(t, owner)
			require.Less(t, len(err.Error()), 200)
			return
		}
		require.NotZero(t, owner)
		require.Equal(t, strings.ToUpper(text), owner.String())
		again, err := reentrant.ParseOwner(owner.String())
		require.NoError(t, err)
		require.Equal(t, owner, again)
	})
}

func TestOwnersInContexts(t *testing.T) {
	plain := context.Background()
	_, ok := reentrant.OwnerFrom(plain)
	require.False(t, ok)

	edge := reentrant.WithOwner(plain)
	owner, ok := reentrant.OwnerFrom(edge)
	require.True(t, ok)
	require.NotZero(t, owner)
	require.Equal(t, edge, reentrant.WithOwner(edge), "kept")

	forked, ok := reentrant.OwnerFrom(reentrant.Fork(edge))
	require.True(t, ok)
	require.NotEqual(t, owner, forked)
	still, _ := reentrant.OwnerFrom(edge)
	require.Equal(t, owner, still)

	other := reentrant.NewOwner()
	acting := reentrant.AsOwner(edge, other)
	got, ok := reentrant.OwnerFrom(acting)
	require.True(t, ok)
	require.Equal(t, other, got)
	require.Equal(t, acting, reentrant.WithOwner(acting), "kept")

	nobody := reentrant.AsOwner(edge, reentrant.Owner{})
	got, ok = reentrant.OwnerFrom(nobody)
	require.False(t, ok)
	require.Zero(t, got)
	_, ok = reentrant.OwnerFrom(reentrant.WithOwner(nobody))
	require.True(t, ok)
}

func TestNoOwnerIsAnErrorAtOnce(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		for _, ctx := range []context.Context{w.Ctx, reentrant.AsOwner(w.Ctx, reentrant.Owner{})} {
			for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
				for _, try := range []bool{false, true} {
					hold, err := p.take(ctx, "a", mode, try)
					require.Nil(w, hold)
					require.ErrorIs(w, err, reentrant.ErrNoOwner)
					require.EqualError(w, err, `reentrant: no owner in the context, attach one with WithOwner: lock "a"`)
				}
			}
		}
		require.Zero(w, scriptsSent(w))
	})
}

// A fork does not join what its parent's process joins: it is another thread of control.
func TestForkLeavesTheJoiningToItsParent(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, owner := owned(w)
		outer := must(w)(first.Lock(ctx, "a"))
		there := elsewhere(w, owner)
		require.NoError(w, must(w)(second.TryLock(there, "a")).Release(there))
		require.NoError(w, must(w)(second.TryLock(reentrant.WithOwner(there), "a")).Release(there))
		sent := scriptsSent(w)
		_, err := second.TryLock(reentrant.Fork(there), "a")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.Equal(w, 1, scriptsSent(w)-sent, "an ordinary attempt and no join before it")
		require.NoError(w, outer.Release(ctx))
	})
}

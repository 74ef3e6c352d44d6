package reentrant_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestNewOwnersDiffer(t *testing.T) {
	seen := map[reentrant.Owner]bool{}
	for range 10_000 {
		seen[reentrant.NewOwner()] = true
	}
	require.Len(t, seen, 10_000)
}

func TestParseOwner(t *testing.T) {
	owner := reentrant.NewOwner()
	for _, text := range []string{owner.String(), strings.ToLower(owner.String())} {
		parsed, err := reentrant.ParseOwner(text)
		require.NoError(t, err)
		require.Equal(t, owner, parsed)
	}
	for name, text := range map[string]string{
		"empty":         "",
		"short":         owner.String()[1:],
		"long":          owner.String() + "0",
		"zero":          strings.Repeat("0", 26),
		"not base 32":   strings.Repeat("U", 26),
		"too large":     "8" + strings.Repeat("0", 25),
		"a space":       " " + owner.String()[1:],
		"far too long":  strings.Repeat("x", 1<<20),
		"not even text": "\xff\x00",
	} {
		parsed, err := reentrant.ParseOwner(text)
		require.ErrorIs(t, err, rwlock.ErrOption, name)
		require.Zero(t, parsed, name)
		require.Less(t, len(err.Error()), 200, name)
	}
}

func FuzzParseOwner(f *testing.F) {
	for _, seed := range []string{
		"", "0", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"80000000000000000000000000", "00000000000000000000000000", "01ARZ3NDEKTSV4RRFFQ69G5FA\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		owner, err := reentrant.ParseOwner(text)
		if err != nil {
			require.ErrorIs(t, err, rwlock.ErrOption)
			require.Zero(t, owner)
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

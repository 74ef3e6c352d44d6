package reentrant_test

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestNestingSendsNoCommandAtAll(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		ctx, _ := owned(w)
		outer := must(w)(p.Lock(ctx, "a"))
		w.Settle()
		before := w.Mini.AllCalls()
		for range 1000 {
			nested := must(w)(p.Lock(ctx, "a"))
			require.NoError(w, nested.Release(ctx))
		}
		require.Equal(w, before, w.Mini.AllCalls())
		require.NoError(w, outer.Release(ctx))
	})
	w := testkit.Start(t, 1)
	l := start(w, rwlock.WithoutRenewal())
	ctx, _ := owned(w)
	outer := must(w)(l.Lock(ctx, "a"))
	w.Server.ResetStats()
	for range 1000 {
		require.NoError(t, must(w)(l.Lock(ctx, "a")).Release(ctx))
	}
	stats := w.Server.Stats()
	delete(stats, "ping") // the client's own, once a second
	require.Empty(t, stats)
	require.NoError(t, outer.Release(ctx))
}

// The Hold is all that a nested acquisition makes.
func TestNestingAllocatesTheHoldOnly(t *testing.T) {
	l, ctx := nestedIn(t, "a")
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { lockAndRelease(t, l, ctx, "a") }), 1.0)
}

// nestedIn returns a locker and the context of a section of the lock, which lasts as long as the test.
func nestedIn(t testing.TB, name string) (*reentrant.Locker, context.Context) {
	t.Helper()
	server := miniredis.RunT(t)
	l := reentrant.New(testkit.Dial(t, server.Addr(), testredis.ClientOption(server.Addr())))
	ctx := reentrant.WithOwner(t.Context())
	outer, err := l.Lock(ctx, name)
	require.NoError(t, err)
	return l, outer.Context(ctx)
}

func lockAndRelease(t testing.TB, l *reentrant.Locker, ctx context.Context, name string) {
	h, err := l.Lock(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

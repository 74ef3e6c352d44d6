package reentrant_test

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestNestingSendsNoCommandAtAll(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, mini *testredis.Mini) {
		p := w.process()
		ctx, _ := owned(t)
		outer := must(t)(p.Lock(ctx, "a"))
		before := mini.AllCalls()
		for range 1000 {
			nested := must(t)(p.Lock(ctx, "a"))
			require.NoError(t, nested.Release(ctx))
		}
		require.Equal(t, before, mini.AllCalls())
		require.NoError(t, outer.Release(ctx))
	})
	srv := testredis.Start(t)
	remote, err := rwlock.New(srv.Client(t), rwlock.WithoutRenewal())
	require.NoError(t, err)
	defer func() { _ = remote.Close() }()
	l := reentrant.New(remote)
	ctx, _ := owned(t)
	outer := must(t)(l.Lock(ctx, "a"))
	srv.ResetStats()
	for range 1000 {
		require.NoError(t, must(t)(l.Lock(ctx, "a")).Release(ctx))
	}
	stats := srv.Stats()
	delete(stats, "ping") // the client's own, once a second
	require.Empty(t, stats)
	require.NoError(t, outer.Release(ctx))
}

// The Hold is all that a nested acquisition makes.
func TestNestingAllocatesTheHoldOnly(t *testing.T) {
	l, ctx := nestedIn(t, "a")
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { lockAndRelease(t, l, ctx, "a") }), 1.0)
}

func BenchmarkNested(b *testing.B) {
	l, ctx := nestedIn(b, "a")
	b.ReportAllocs()
	for b.Loop() {
		lockAndRelease(b, l, ctx, "a")
	}
}

func BenchmarkNestedDo(b *testing.B) {
	l, ctx := nestedIn(b, "a")
	nothing := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Do(ctx, "a", nothing); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNestedParallel(b *testing.B) {
	l, ctx := nestedIn(b, "a")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ctx := reentrant.Fork(ctx)
		name := "b" + reentrant.NewOwner().String()
		outer, err := l.Lock(ctx, name)
		if err != nil {
			b.Error(err)
			return
		}
		for pb.Next() {
			lockAndRelease(b, l, ctx, name)
		}
		_ = outer.Release(ctx)
	})
}

// nestedIn returns a locker and the context of a section of the lock, which lasts as long as the test.
func nestedIn(t testing.TB, name string) (*reentrant.Locker, context.Context) {
	t.Helper()
	server := miniredis.RunT(t)
	client, err := rwlock.Dial(server.Addr(), testredis.ClientOption(server.Addr()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	remote, err := rwlock.New(client)
	require.NoError(t, err)
	t.Cleanup(func() { _ = remote.Close() })
	l := reentrant.New(remote)
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

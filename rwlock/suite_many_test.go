package rwlock_test

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

func severalTogether(w *world) {
	var trace testkit.Trace
	p, q := w.Process(trace.Option()), w.Process()
	names := []string{"c", "a", "b"}
	all, err := p.LockAll(w.Ctx, rwlock.Writes(names...))
	require.NoError(w, err)
	ctx := all.Context(w.Ctx)
	for i, lease := range all.Leases() {
		require.Equal(w, names[i], lease.Name(), "the order of the caller")
		require.Equal(w, rwlock.Write, lease.Mode())
		fence, ok := fencing.FromContext(ctx, names[i])
		require.True(w, ok)
		require.Equal(w, lease.Fence(), fence)
		_, err := q.TryLock(w.Ctx, names[i])
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		_, err = p.Lock(ctx, names[i])
		require.ErrorIs(w, err, rwlock.ErrNested)
	}
	require.NoError(w, all.Err())
	require.NoError(w, ctx.Err())

	require.NoError(w, all.Release(w.Ctx))
	require.ErrorIs(w, all.Err(), rwlock.ErrReleased)
	require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
	w.UntilClosed(all.Done())
	require.NoError(w, all.Release(w.Ctx), "nothing is left to release")
	for _, name := range names {
		require.True(w, isFree(w, name))
		w.Eventually("both events", func() bool { return len(trace.Events(name)) == 2 })
		require.Equal(w, "acquired", trace.Events(name)[0].What)
		require.Equal(w, "released", trace.Events(name)[1].What)
	}
	require.Equal(w, uint64(3), p.Stats().Acquired)
	require.Zero(w, p.Stats().Held)
}

func severalReaders(w *world) {
	p, q := w.Process(), w.Process()
	names := []string{"a", "b", "c"}
	first, err := p.LockAll(w.Ctx, rwlock.Reads(names...))
	require.NoError(w, err)
	second, err := q.LockAll(w.Ctx, rwlock.Reads(names...))
	require.NoError(w, err)
	third, err := p.TryLockAll(w.Ctx, rwlock.Reads(names...))
	require.NoError(w, err)
	c := takeAll(w.Process(), w.Ctx, rwlock.Writes(names...))
	w.UntilWaiting("a", 1)
	for _, all := range []*rwlock.MultiLease{first, second, third} {
		require.NoError(w, all.Err())
		require.NoError(w, all.Release(w.Ctx))
	}
	require.NoError(w, c.granted(w).Release(w.Ctx))
}

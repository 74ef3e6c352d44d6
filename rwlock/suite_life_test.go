package rwlock_test

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

func maxHold(w *world) {
	limit := w.Short * 5 / 2
	p, q := w.Process(), w.Process()
	start := time.Now()
	lease := p.Take("n", rwlock.Write, rwlock.WithTTL(w.Short), rwlock.WithMaxHold(limit))
	next := q.Queue("n", rwlock.Write)
	w.UntilOver(lease)
	over := time.Since(start)
	require.GreaterOrEqual(w, over, limit)
	if w.Mini != nil {
		require.Equal(w, limit, over)
	}
	loss := w.Loss(lease.Err())
	require.Equal(w, rwlock.MaxHold, loss.Reason)
	require.Equal(w, lease.Token(), loss.Token)
	require.Equal(w, "n", loss.Name)
	require.Positive(w, p.Stats().Renewed, "it lived longer than its TTL")
	w.Release(next.Granted())
	w.RequireLess(next.At.Sub(start), limit+w.Short/2, "the hold was given back, not left to expire")
	require.ErrorIs(w, lease.Release(w.Ctx), rwlock.ErrLost)
}

func withoutRenewal(w *world) {
	p, q := w.Process(), w.Process()
	start := time.Now()
	lease := p.Take("n", rwlock.Write, rwlock.WithTTL(w.Short), rwlock.WithoutRenewal())
	deadline := lease.Deadline()
	next := q.Queue("n", rwlock.Write)
	w.UntilOver(lease)
	over := time.Since(start)
	require.Equal(w, rwlock.Expired, w.Loss(lease.Err()).Reason)
	if w.Mini != nil {
		drift := w.Short/100 + 2*time.Millisecond
		require.Equal(w, w.Short-drift, over)
		require.Equal(w, start.Add(over), deadline)
	}
	w.Release(next.Granted())
	require.False(w, next.At.Before(deadline), "the next came in while the first was trusted")
	require.Zero(w, p.Stats().Renewed)
	require.Equal(w, rwlock.Expired, w.Loss(lease.Release(w.Ctx)).Reason)
	w.OnlyTokensLeft()
}

func renewedForLong(w *world) {
	p, q := w.Process(rwlock.WithTTL(w.Short)), w.Process()
	first := p.Take("n", rwlock.Read)
	second := p.Take("n", rwlock.Read)
	deadline := first.Deadline()
	next := q.Queue("n", rwlock.Write)
	const ttls = 3
	w.Eventually("both were renewed over several TTLs", func() bool { return p.Stats().Renewed >= 2*3*ttls })
	for _, lease := range []*rwlock.Lease{first, second} {
		require.NoError(w, lease.Err())
		require.Greater(w, lease.Deadline().Sub(deadline), (ttls-1)*w.Short)
	}
	require.True(w, next.IsWaiting())
	require.Zero(w, p.Stats().RenewFailed)
	w.Release(first, second)
	w.Release(next.Granted())
	w.OnlyTokensLeft()
}

func renewedByHand(w *world) {
	p := w.Process()
	lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
	before, token := lease.Deadline(), lease.Token()
	w.Eventually("time has gone by", func() bool { return time.Until(before) < w.TTL*9/10 })
	require.NoError(w, lease.Renew(w.Ctx))
	require.Greater(w, lease.Deadline().Sub(before), w.TTL/20)
	require.Equal(w, token, lease.Token())
	w.Release(lease)
	require.ErrorIs(w, lease.Renew(w.Ctx), rwlock.ErrReleased)
	require.Empty(w, w.Inspect("n").Holders)
	w.OnlyTokensLeft()
}

func lostOnServer(w *world) {
	p, q := w.Process(), w.Process()
	lease := p.Take("n", rwlock.Write)
	w.FlushAll()
	usurper := q.Take("n", rwlock.Write)
	require.Greater(w, usurper.Token(), lease.Token(), "the storage can tell them apart")
	w.UntilOver(lease)
	require.Equal(w, rwlock.Taken, w.Loss(lease.Err()).Reason)
	require.ErrorIs(w, lease.Renew(w.Ctx), rwlock.ErrLost)
	require.ErrorIs(w, lease.Release(w.Ctx), rwlock.ErrLost)
	require.NoError(w, usurper.Err())
	w.Release(usurper)
	w.OnlyTokensLeft()
}

func doRuns(w *world) {
	type key struct{}
	reason := errors.New("from the section")
	p, q := w.Process(), w.Process()
	for _, c := range []struct {
		mode rwlock.Mode
		do   func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
	}{{rwlock.Write, p.Do}, {rwlock.Read, p.RDo}} {
		var inner context.Context
		err := c.do(context.WithValue(w.Ctx, key{}, 7), "n", func(ctx context.Context) error {
			inner = ctx
			require.NoError(w, ctx.Err())
			require.Equal(w, 7, ctx.Value(key{}))
			fence, ok := fencing.FromContext(ctx, "n")
			require.True(w, ok)
			state := w.Inspect("n")
			require.Equal(w, state.Token, fence.Token)
			require.Equal(w, c.mode, state.Mode)
			require.Equal(w, c.mode, fence.Mode)
			return reason
		})
		require.Equal(w, reason, err)
		require.ErrorIs(w, context.Cause(inner), rwlock.ErrReleased)
		require.NoError(w, c.do(w.Ctx, "n", func(context.Context) error { return nil }))
		w.OnlyTokensLeft()
	}

	held := q.Take("n", rwlock.Write)
	err := p.Do(w.Ctx, "n", func(context.Context) error {
		w.Error("ran without the lock")
		return nil
	}, rwlock.WithMaxWait(w.Short/2))
	require.ErrorIs(w, err, rwlock.ErrNotAcquired)
	w.Release(held)
}

func doPanics(w *world) {
	p := w.Process()
	type doing = func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
	for _, do := range []doing{p.Do, p.RDo} {
		require.PanicsWithValue(w, "in the section", func() {
			_ = do(w.Ctx, "n", func(context.Context) error { panic("in the section") })
		})
		require.Zero(w, p.Stats().Held)
		w.OnlyTokensLeft()
	}
}

func doLoses(w *world) {
	reason := errors.New("from the section")
	p := w.Process(rwlock.WithTTL(w.Short))
	for _, result := range []error{nil, reason} {
		err := p.Do(w.Ctx, "n", func(ctx context.Context) error {
			w.FlushAll()
			w.UntilClosed(ctx.Done())
			require.Equal(w, rwlock.Taken, w.Loss(context.Cause(ctx)).Reason)
			return result
		})
		require.ErrorIs(w, err, rwlock.ErrLost)
		if result != nil {
			require.ErrorIs(w, err, reason)
		}
	}
}

func leaseContext(w *world) {
	type key struct{}
	p := w.Process()
	parent, cancel := context.WithCancelCause(context.WithValue(w.Ctx, key{}, "v"))
	lease := p.Take("n", rwlock.Write)
	ctx := lease.Context(parent)
	require.NoError(w, ctx.Err())
	require.Equal(w, "v", ctx.Value(key{}))
	fence, err := fencing.Require(ctx, "n")
	require.NoError(w, err)
	require.Equal(w, lease.Fence(), fence)

	reason := errors.New("the caller went home")
	cancel(reason)
	require.Equal(w, reason, context.Cause(ctx))
	require.NoError(w, lease.Err(), "a parent's end is not the lease's")

	child := lease.Context(w.Ctx)
	w.Release(lease)
	w.UntilClosed(child.Done())
	require.ErrorIs(w, context.Cause(child), rwlock.ErrReleased)
	late := lease.Context(w.Ctx)
	require.ErrorIs(w, context.Cause(late), rwlock.ErrReleased, "a context of a lease that has ended has ended")
	select {
	case <-lease.Done():
	default:
		w.Error("Done is open after Release")
	}

	lost := p.Take("n", rwlock.Write)
	child = lost.Context(w.Ctx)
	w.FlushAll()
	w.UntilClosed(child.Done())
	require.Equal(w, lost.Err(), context.Cause(child))
	require.Equal(w, lost.Token(), w.Loss(context.Cause(child)).Token)
}

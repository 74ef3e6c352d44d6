package rwlock_test

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// loss returns the LostError in err, and fails the test if there is none.
func (w *world) loss(err error) *rwlock.LostError {
	w.t.Helper()
	require.ErrorIs(w.t, err, rwlock.ErrLost)
	e, ok := errors.AsType[*rwlock.LostError](err)
	require.True(w.t, ok)
	return e
}

func maxHold(w *world) {
	limit := w.short * 5 / 2
	p, q := w.process(), w.process()
	start := time.Now()
	lease := p.lock("n", rwlock.Write, rwlock.WithTTL(w.short), rwlock.WithMaxHold(limit))
	next := q.queue("n", rwlock.Write)
	w.untilOver(lease)
	over := time.Since(start)
	require.GreaterOrEqual(w.t, over, limit)
	if w.mini != nil {
		require.Equal(w.t, limit, over)
	}
	loss := w.loss(lease.Err())
	require.Equal(w.t, rwlock.MaxHold, loss.Reason)
	require.Equal(w.t, lease.Token(), loss.Token)
	require.Equal(w.t, "n", loss.Name)
	require.Positive(w.t, p.Stats().Renewed, "it lived longer than its TTL")
	w.release(next.granted())
	w.requireLess(next.at.Sub(start), limit+w.short/2, "the hold was given back, not left to expire")
	require.ErrorIs(w.t, lease.Release(w.ctx), rwlock.ErrLost)
}

func withoutRenewal(w *world) {
	p, q := w.process(), w.process()
	start := time.Now()
	lease := p.lock("n", rwlock.Write, rwlock.WithTTL(w.short), rwlock.WithoutRenewal())
	deadline := lease.Deadline()
	next := q.queue("n", rwlock.Write)
	w.untilOver(lease)
	over := time.Since(start)
	require.Equal(w.t, rwlock.Expired, w.loss(lease.Err()).Reason)
	if w.mini != nil {
		drift := w.short/100 + 2*time.Millisecond
		require.Equal(w.t, w.short-drift, over)
		require.Equal(w.t, start.Add(over), deadline)
	}
	w.release(next.granted())
	require.False(w.t, next.at.Before(deadline), "the next came in while the first was trusted")
	require.Zero(w.t, p.Stats().Renewed)
	require.Equal(w.t, rwlock.Expired, w.loss(lease.Release(w.ctx)).Reason)
	w.onlyTokensLeft()
}

func renewedForLong(w *world) {
	p, q := w.process(rwlock.WithTTL(w.short)), w.process()
	first := p.lock("n", rwlock.Read)
	second := p.lock("n", rwlock.Read)
	deadline := first.Deadline()
	next := q.queue("n", rwlock.Write)
	const ttls = 3
	w.eventually("both were renewed over several TTLs", func() bool { return p.Stats().Renewed >= 2*3*ttls })
	for _, lease := range []*rwlock.Lease{first, second} {
		require.NoError(w.t, lease.Err())
		require.Greater(w.t, lease.Deadline().Sub(deadline), (ttls-1)*w.short)
	}
	require.True(w.t, next.isWaiting())
	require.Zero(w.t, p.Stats().RenewFailed)
	w.release(first, second)
	w.release(next.granted())
	w.onlyTokensLeft()
}

func renewedByHand(w *world) {
	p := w.process()
	lease := p.lock("n", rwlock.Write, rwlock.WithoutRenewal())
	before, token := lease.Deadline(), lease.Token()
	w.eventually("time has gone by", func() bool { return time.Until(before) < w.ttl*9/10 })
	require.NoError(w.t, lease.Renew(w.ctx))
	require.Greater(w.t, lease.Deadline().Sub(before), w.ttl/20)
	require.Equal(w.t, token, lease.Token())
	w.release(lease)
	require.ErrorIs(w.t, lease.Renew(w.ctx), rwlock.ErrReleased)
	require.Empty(w.t, w.inspect("n").Holders)
	w.onlyTokensLeft()
}

func lostOnServer(w *world) {
	p, q := w.process(), w.process()
	lease := p.lock("n", rwlock.Write)
	w.flushAll()
	usurper := q.lock("n", rwlock.Write)
	require.Greater(w.t, usurper.Token(), lease.Token(), "the storage can tell them apart")
	w.untilOver(lease)
	require.Equal(w.t, rwlock.Taken, w.loss(lease.Err()).Reason)
	require.ErrorIs(w.t, lease.Renew(w.ctx), rwlock.ErrLost)
	require.ErrorIs(w.t, lease.Release(w.ctx), rwlock.ErrLost)
	require.NoError(w.t, usurper.Err())
	w.release(usurper)
	w.onlyTokensLeft()
}

func doRuns(w *world) {
	type key struct{}
	reason := errors.New("from the section")
	p, q := w.process(), w.process()
	for _, c := range []struct {
		mode rwlock.Mode
		do   func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
	}{{rwlock.Write, p.Do}, {rwlock.Read, p.RDo}} {
		var inner context.Context
		err := c.do(context.WithValue(w.ctx, key{}, 7), "n", func(ctx context.Context) error {
			inner = ctx
			require.NoError(w.t, ctx.Err())
			require.Equal(w.t, 7, ctx.Value(key{}))
			fence, ok := fencing.FromContext(ctx, "n")
			require.True(w.t, ok)
			state := w.inspect("n")
			require.Equal(w.t, state.Token, fence.Token)
			require.Equal(w.t, c.mode, state.Mode)
			require.Equal(w.t, c.mode, fence.Mode)
			return reason
		})
		require.Equal(w.t, reason, err)
		require.ErrorIs(w.t, context.Cause(inner), rwlock.ErrReleased)
		require.NoError(w.t, c.do(w.ctx, "n", func(context.Context) error { return nil }))
		w.onlyTokensLeft()
	}

	held := q.lock("n", rwlock.Write)
	err := p.Do(w.ctx, "n", func(context.Context) error {
		w.t.Error("ran without the lock")
		return nil
	}, rwlock.WithMaxWait(w.short/2))
	require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
	w.release(held)
}

func doPanics(w *world) {
	p := w.process()
	type doing = func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
	for _, do := range []doing{p.Do, p.RDo} {
		require.PanicsWithValue(w.t, "in the section", func() {
			_ = do(w.ctx, "n", func(context.Context) error { panic("in the section") })
		})
		require.Zero(w.t, p.Stats().Held)
		w.onlyTokensLeft()
	}
}

func doLoses(w *world) {
	reason := errors.New("from the section")
	p := w.process(rwlock.WithTTL(w.short))
	for _, result := range []error{nil, reason} {
		err := p.Do(w.ctx, "n", func(ctx context.Context) error {
			w.flushAll()
			w.untilClosed(ctx.Done())
			require.Equal(w.t, rwlock.Taken, w.loss(context.Cause(ctx)).Reason)
			return result
		})
		require.ErrorIs(w.t, err, rwlock.ErrLost)
		if result != nil {
			require.ErrorIs(w.t, err, reason)
		}
	}
}

func leaseContext(w *world) {
	type key struct{}
	p := w.process()
	parent, cancel := context.WithCancelCause(context.WithValue(w.ctx, key{}, "v"))
	lease := p.lock("n", rwlock.Write)
	ctx := lease.Context(parent)
	require.NoError(w.t, ctx.Err())
	require.Equal(w.t, "v", ctx.Value(key{}))
	fence, err := fencing.Require(ctx, "n")
	require.NoError(w.t, err)
	require.Equal(w.t, lease.Fence(), fence)

	reason := errors.New("the caller went home")
	cancel(reason)
	require.Equal(w.t, reason, context.Cause(ctx))
	require.NoError(w.t, lease.Err(), "a parent's end is not the lease's")

	child := lease.Context(w.ctx)
	w.release(lease)
	w.untilClosed(child.Done())
	require.ErrorIs(w.t, context.Cause(child), rwlock.ErrReleased)
	late := lease.Context(w.ctx)
	require.ErrorIs(w.t, context.Cause(late), rwlock.ErrReleased, "a context of a lease that has ended has ended")
	select {
	case <-lease.Done():
	default:
		w.t.Error("Done is open after Release")
	}

	lost := p.lock("n", rwlock.Write)
	child = lost.Context(w.ctx)
	w.flushAll()
	w.untilClosed(child.Done())
	require.Equal(w.t, lost.Err(), context.Cause(child))
	require.Equal(w.t, lost.Token(), w.loss(context.Cause(child)).Token)
}

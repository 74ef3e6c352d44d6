package rwlock_test

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

var bothModes = []rwlock.Mode{rwlock.Read, rwlock.Write}

// try is a single attempt in that mode.
func (p *process) try(name string, mode rwlock.Mode, opts ...rwlock.LockOption) (*rwlock.Lease, error) {
	if mode == rwlock.Read {
		return p.TryRLock(p.w.ctx, name, opts...)
	}
	return p.TryLock(p.w.ctx, name, opts...)
}

func freeLock(w *world) {
	p := w.process()
	var last fencing.Token
	for range 3 {
		for _, mode := range bothModes {
			waited := p.lock("n", mode)
			require.Equal(w.t, "n", waited.Name())
			require.Equal(w.t, mode, waited.Mode())
			require.Len(w.t, waited.Owner(), 26)
			require.NoError(w.t, waited.Err())
			require.Greater(w.t, waited.Token(), last)
			w.release(waited)
			require.ErrorIs(w.t, waited.Err(), rwlock.ErrReleased)
			require.NoError(w.t, waited.Release(w.ctx), "a second Release")

			tried, err := p.try("n", mode)
			require.NoError(w.t, err)
			require.Greater(w.t, tried.Token(), waited.Token())
			require.Equal(w.t, fencing.Fence{Resource: "n", Token: tried.Token(), Mode: mode}, tried.Fence())
			last = tried.Token()
			w.release(tried)
		}
	}
	require.NoError(w.t, (*rwlock.Lease)(nil).Release(w.ctx))
	w.onlyTokensLeft()
}

func compatibility(w *world) {
	holder, other := w.process(), w.process()
	for _, c := range []struct {
		held, wanted rwlock.Mode
		together     bool
	}{
		{rwlock.Read, rwlock.Read, true},
		{rwlock.Read, rwlock.Write, false},
		{rwlock.Write, rwlock.Read, false},
		{rwlock.Write, rwlock.Write, false},
	} {
		for _, contender := range []*process{holder, other} {
			first := holder.lock("n", c.held)
			tried, err := contender.try("n", c.wanted)
			if c.together {
				require.NoError(w.t, err)
				require.Greater(w.t, tried.Token(), first.Token())
				w.release(tried)
				w.release(contender.lock("n", c.wanted))
			} else {
				require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
				waiting := contender.queue("n", c.wanted)
				require.True(w.t, waiting.isWaiting())
				require.NoError(w.t, first.Err())
				w.release(first)
				w.release(waiting.granted())
			}
			w.release(first)
		}
	}
	w.onlyTokensLeft()
}

func writerHoldsReadersBack(w *world) {
	p, q := w.process(), w.process()
	reader := p.lock("n", rwlock.Read)
	writer := q.queue("n", rwlock.Write)
	_, err := p.TryRLock(w.ctx, "n")
	require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
	late := p.queue("n", rwlock.Read)
	w.release(reader)
	w.release(writer.granted())
	w.release(late.granted())
}

func refusedTry(w *world) {
	p, q := w.process(), w.process()
	held := p.lock("n", rwlock.Write, rwlock.WithMeta("host 7: importer"))
	for _, mode := range bothModes {
		_, err := q.try("n", mode)
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		require.False(w.t, rwlock.Indeterminate(err))
		e, ok := errors.AsType[*rwlock.AcquireError](err)
		require.True(w.t, ok)
		require.Equal(w.t, "n", e.Name)
		require.Equal(w.t, mode, e.Mode)
		require.Equal(w.t, 1, e.Attempts)
		require.NoError(w.t, e.Err)
		require.NotNil(w.t, e.Holder)
		require.Equal(w.t, held.Owner(), e.Holder.Owner)
		require.Equal(w.t, "host 7: importer", e.Holder.Meta)
		require.Equal(w.t, rwlock.Write, e.Holder.Mode)
		require.Positive(w.t, e.Holder.Remaining)
		require.Contains(w.t, err.Error(), held.Owner())
	}
	require.Empty(w.t, w.inspect("n").Waiters)
	w.release(held)
	w.onlyTokensLeft()
}

func arrivalOrder(w *world) {
	processes := []*process{w.process(), w.process(), w.process()}
	held := processes[0].lock("n", rwlock.Write)
	var queue []*pending
	for i := range 9 {
		queue = append(queue, processes[i%3].queue("n", bothModes[(i+1)%2]))
	}
	for i, next := range queue { // writers and readers take turns, so each is alone
		for _, later := range queue[i:] {
			require.True(w.t, later.isWaiting())
		}
		w.release(held)
		lease := next.granted()
		require.Greater(w.t, lease.Token(), held.Token())
		held = lease
	}
	w.release(held)
	w.onlyTokensLeft()
}

func readersTogether(w *world) {
	p, q := w.process(), w.process()
	first := p.lock("n", rwlock.Write)
	early := []*pending{p.queue("n", rwlock.Read), q.queue("n", rwlock.Read), q.queue("n", rwlock.Read)}
	writer := q.queue("n", rwlock.Write)
	late := []*pending{p.queue("n", rwlock.Read), q.queue("n", rwlock.Read)}

	w.release(first)
	var readers []*rwlock.Lease
	for _, a := range early {
		readers = append(readers, a.granted())
	}
	require.Len(w.t, w.inspect("n").Holders, len(early), "all at once")
	for _, reader := range readers {
		require.True(w.t, writer.isWaiting())
		w.release(reader)
	}
	second := writer.granted()
	for _, a := range late {
		require.True(w.t, a.isWaiting())
	}
	w.release(second)
	w.release(late[0].granted(), late[1].granted())
	w.onlyTokensLeft()
}

func contextEndsWaiting(w *world) {
	reason := errors.New("the shop has closed")
	p, q := w.process(), w.process()
	held := p.lock("n", rwlock.Read)
	ctx, cancel := context.WithCancelCause(w.ctx)
	defer cancel(nil)
	leaves := q.acquire(ctx, "n", rwlock.Write)
	w.untilWaiting("n", 1)
	behind := q.queue("n", rwlock.Read)
	w.eventually("both know that they wait", func() bool { return q.Stats().Waiting == 2 })

	cancel(reason)
	err := leaves.failed()
	require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
	require.ErrorIs(w.t, err, context.Canceled)
	require.ErrorIs(w.t, err, reason)
	require.ErrorContains(w.t, err, reason.Error())
	require.NotErrorIs(w.t, err, rwlock.ErrNoQuorum)
	e, ok := errors.AsType[*rwlock.AcquireError](err)
	require.True(w.t, ok)
	require.NotNil(w.t, e.Holder)
	require.Equal(w.t, held.Owner(), e.Holder.Owner)

	w.release(behind.granted()) // it waited for the writer only
	w.release(held)
	w.eventually("the queue is gone", func() bool { return len(w.inspect("n").Waiters) == 0 })
	w.onlyTokensLeft()
}

func endedContext(w *world) {
	p := w.process()
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	for _, mode := range bothModes {
		err := p.acquire(ctx, "n", mode).failed()
		require.ErrorIs(w.t, err, context.Canceled)
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		require.False(w.t, rwlock.Indeterminate(err))
	}
	require.Zero(w.t, p.link.Calls("EVALSHA")+p.link.Calls("EVAL"))
	require.Empty(w.t, w.keys())
}

func maxWait(w *world) {
	limit := w.ttl / 4
	p, q := w.process(), w.process()
	held := p.lock("n", rwlock.Write)
	start := time.Now()
	a := q.acquire(w.ctx, "n", rwlock.Write, rwlock.WithMaxWait(limit))
	err := a.failed()
	require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
	require.ErrorContains(w.t, err, "WithMaxWait")
	require.ErrorContains(w.t, err, limit.String())
	e, ok := errors.AsType[*rwlock.AcquireError](err)
	require.True(w.t, ok)
	require.GreaterOrEqual(w.t, e.Waited, limit)
	if w.mini != nil {
		require.Equal(w.t, limit, a.at.Sub(start))
	}
	w.untilWaiting("n", 0)
	require.NoError(w.t, held.Err())
	w.release(held)

	quick := q.lock("n", rwlock.Write, rwlock.WithMaxWait(limit))
	w.release(quick)
	w.onlyTokensLeft()
}

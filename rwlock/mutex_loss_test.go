package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// locking is a call of an RWMutex under way in a goroutine of its own.
type locking struct {
	w    *world
	over chan struct{}
	err  error
}

func (w *world) locking(ctx context.Context, lock func(context.Context) error) *locking {
	l := &locking{w: w, over: make(chan struct{})}
	go func() {
		defer close(l.over)
		l.err = lock(ctx)
	}()
	w.settle() // fake time: it waits or is over, so that the next one comes after it
	return l
}

func (l *locking) isWaiting() bool {
	l.w.settle()
	select {
	case <-l.over:
		return false
	default:
		return true
	}
}

// result waits for the end of the call.
func (l *locking) result() error {
	l.w.t.Helper()
	l.w.untilClosed(l.over)
	return l.err
}

// Whoever lost the lock stands in it until it unlocks: it keeps its own token, and nobody else of the process is let
// in.
func TestRWMutexStaysWithWhoeverLostIt(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		limit := rwlock.WithMaxHold(300 * time.Millisecond)
		mu := p.RWMutex("cfg", limit)
		require.NoError(w.t, mu.Lock(w.ctx))
		lost, ctx := mu.Token(), mu.Context(w.ctx)
		next := w.locking(w.ctx, p.RWMutex("cfg", limit).Lock)
		reader := w.locking(w.ctx, mu.RLock)
		w.pass(w.ttl)

		require.Equal(w.t, rwlock.MaxHold, w.loss(context.Cause(ctx)).Reason)
		require.True(w.t, next.isWaiting())
		require.True(w.t, reader.isWaiting())
		require.Equal(w.t, lost, mu.Token())
		require.ErrorIs(w.t, mu.Context(w.ctx).Err(), context.Canceled, "the context of a lock that was lost has ended")
		require.ErrorIs(w.t, mu.TryLock(w.ctx), rwlock.ErrNotAcquired)
		refused := mu.TryRLock(w.ctx)
		require.ErrorIs(w.t, refused, rwlock.ErrNotAcquired)
		require.ErrorContains(w.t, refused, "has not unlocked it")

		loss := w.loss(mu.Unlock(w.ctx))
		require.Equal(w.t, rwlock.MaxHold, loss.Reason)
		require.Equal(w.t, lost, loss.Token)
		require.NoError(w.t, next.result())
		require.Greater(w.t, mu.Token(), lost)
		require.NoError(w.t, mu.Context(w.ctx).Err())
		require.NoError(w.t, mu.Unlock(w.ctx))
		require.NoError(w.t, reader.result())
		require.NoError(w.t, mu.RUnlock(w.ctx))
		require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrNotHeld)
		require.Zero(w.t, mu.Token())
		w.onlyTokensLeft()
	})
}

// The late write of one that lost the lock carries its own token, and the guard refuses it.
func TestALateWriteUnderALostRWMutexIsStale(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		mu, other := p.RWMutex("cfg"), q.RWMutex("cfg")
		var store fencing.Watermark
		write := func(m *rwlock.RWMutex) error {
			f := fencing.Fence{Resource: "cfg", Token: m.Token(), Mode: fencing.Write}
			return store.Do(w.ctx, f, func(context.Context) error { return nil })
		}
		require.NoError(w.t, mu.Lock(w.ctx))
		p.link.Blackhole(testredis.Both)
		next := w.locking(w.ctx, mu.Lock)
		w.pass(2 * w.ttl)
		require.NoError(w.t, other.Lock(w.ctx))
		require.NoError(w.t, write(other))
		require.NoError(w.t, other.Unlock(w.ctx))
		p.link.Restore()
		w.pass(w.ttl)

		require.True(w.t, next.isWaiting())
		require.ErrorIs(w.t, write(mu), fencing.ErrStale)
		require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrLost)
		require.NoError(w.t, next.result())
		require.NoError(w.t, write(mu))
		require.NoError(w.t, mu.Unlock(w.ctx))
	})
}

// A missing Unlock keeps the process out, which its waiters are told, and nobody else: no lease is renewed for ever.
func TestAMissingUnlockAfterALossConcernsItsProcessOnly(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		mu := p.RWMutex("s")
		require.NoError(w.t, mu.Lock(w.ctx))
		w.flushAll()
		w.untilClosed(mu.Context(w.ctx).Done())

		ctx, cancel := context.WithTimeout(w.ctx, w.ttl)
		defer cancel()
		err := w.locking(ctx, mu.Lock).result()
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		require.ErrorIs(w.t, err, context.DeadlineExceeded)
		require.NotErrorIs(w.t, err, rwlock.ErrLost, "it was another goroutine that lost it")
		require.ErrorContains(w.t, err, "not unlocked yet")

		w.release(q.lock("s", rwlock.Write))
		require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrLost)
		require.NoError(w.t, mu.Lock(w.ctx))
		require.NoError(w.t, mu.Unlock(w.ctx))
		w.release(q.lock("s", rwlock.Write))
		w.onlyTokensLeft()
	})
}

// Each of the readers that shared a lease is told of its loss, and none joins it any more.
func TestALossEndsEveryReaderOfTheLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n")
		for range 3 {
			require.NoError(w.t, mu.RLock(w.ctx))
		}
		lost := mu.Token()
		w.flushAll()
		w.untilClosed(mu.Context(w.ctx).Done())
		late := []*locking{w.locking(w.ctx, mu.RLock), w.locking(w.ctx, mu.RLock)}
		require.ErrorIs(w.t, mu.TryRLock(w.ctx), rwlock.ErrNotAcquired)
		for range 3 {
			require.True(w.t, late[0].isWaiting())
			require.Equal(w.t, lost, w.loss(mu.RUnlock(w.ctx)).Token)
		}
		for _, l := range late {
			require.NoError(w.t, l.result())
			require.Greater(w.t, mu.Token(), lost)
		}
		require.Len(w.t, w.inspect("n").Holders, 1)
		require.NoError(w.t, mu.RUnlock(w.ctx))
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.onlyTokensLeft()
	})
}

// Two readers that overlap all the time, each for far less than the limit, never end each other; a reader that stays
// for longer than the limit is ended.
func TestOverlappingReadersDoNotEndEachOther(t *testing.T) {
	for name, opt := range map[string]rwlock.LockOption{
		"WithMaxHold": rwlock.WithMaxHold(time.Second), "WithoutRenewal": rwlock.WithoutRenewal(),
		"by default": rwlock.WithTTL(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				mu := w.process(rwlock.WithTTL(time.Second)).RWMutex("cfg", opt)
				const rounds, hold = 25, 100 * time.Millisecond
				require.NoError(w.t, mu.RLock(w.ctx))
				first := mu.Token()
				for range rounds {
					time.Sleep(hold / 2)
					require.NoError(w.t, mu.RLock(w.ctx))
					require.Equal(w.t, first, mu.Token(), "one remote hold")
					ctx := mu.Context(w.ctx)
					time.Sleep(hold / 2)
					require.NoError(w.t, mu.RUnlock(w.ctx)) // of the one that came before
					require.NoError(w.t, ctx.Err())
					require.Len(w.t, w.inspect("cfg").Holders, 1)
				}
				ctx := mu.Context(w.ctx)
				w.pass(2 * time.Second)
				if name == "by default" {
					require.NoError(w.t, ctx.Err())
					require.NoError(w.t, mu.RUnlock(w.ctx))
					w.onlyTokensLeft()
					return
				}
				reason := map[string]rwlock.Reason{"WithMaxHold": rwlock.MaxHold, "WithoutRenewal": rwlock.Expired}[name]
				require.Equal(w.t, reason, w.loss(context.Cause(ctx)).Reason)
				require.Empty(w.t, w.inspect("cfg").Holders, "it does not block others")
				require.ErrorIs(w.t, mu.TryRLock(w.ctx), rwlock.ErrNotAcquired)
				require.Equal(w.t, reason, w.loss(mu.RUnlock(w.ctx)).Reason)
				require.NoError(w.t, mu.RLock(w.ctx))
				require.NoError(w.t, mu.RUnlock(w.ctx))
				w.onlyTokensLeft()
			})
		})
	}
}

// At WithMaxHold the contexts of the readers end before anybody else is let in.
func TestReadersEndBeforeAnotherIsLetInAtTheirLimit(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		mu := p.RWMutex("n", rwlock.WithMaxHold(time.Second))
		require.NoError(w.t, mu.RLock(w.ctx))
		ctx := mu.Context(w.ctx)
		began := time.Now()
		writer := q.queue("n", rwlock.Write)
		lease := writer.granted()
		require.ErrorIs(w.t, context.Cause(ctx), rwlock.ErrLost)
		require.Less(w.t, writer.at.Sub(began), 2*time.Second, "given back at the limit")
		w.release(lease)
		require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrLost)
	})
}

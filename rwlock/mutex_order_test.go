package rwlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Goroutines of a process are served as they came, readers between two writers together and by one remote hold.
func TestRWMutexServesInTheOrderOfArrival(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		token := mu.Token()
		early := []*locking{w.locking(w.ctx, mu.RLock), w.locking(w.ctx, mu.RLock), w.locking(w.ctx, mu.RLock)}
		writers := []*locking{w.locking(w.ctx, mu.Lock), w.locking(w.ctx, mu.Lock)}
		late := w.locking(w.ctx, mu.RLock)
		require.Empty(w.t, w.inspect("n").Waiters, "they wait in the process")

		require.NoError(w.t, mu.Unlock(w.ctx))
		for _, l := range early {
			require.NoError(w.t, l.result())
		}
		require.Len(w.t, w.inspect("n").Holders, 1)
		require.Greater(w.t, mu.Token(), token)
		token = mu.Token()
		require.ErrorIs(w.t, mu.TryRLock(w.ctx), rwlock.ErrNotAcquired, "a writer waits")
		for range early {
			require.True(w.t, writers[0].isWaiting())
			require.NoError(w.t, mu.RUnlock(w.ctx))
		}
		for i, l := range writers {
			require.NoError(w.t, l.result())
			require.Greater(w.t, mu.Token(), token, "each writer has a token of its own")
			token = mu.Token()
			require.True(w.t, i > 0 || writers[1].isWaiting())
			require.True(w.t, late.isWaiting())
			require.NoError(w.t, mu.Unlock(w.ctx))
		}
		require.NoError(w.t, late.result())
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.onlyTokensLeft()
	})
}

// The first reader asks Redis for the batch. When its context ends, the next one does.
func TestAnotherReaderTakesOverFromTheOneThatLeaves(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		held := q.lock("n", rwlock.Write)
		mu := p.RWMutex("n")
		reason := errors.New("the request is over")
		ctx, cancel := context.WithCancelCause(w.ctx)
		first := w.locking(ctx, mu.RLock)
		others := []*locking{w.locking(w.ctx, mu.RLock), w.locking(w.ctx, mu.RLock)}
		require.Len(w.t, w.inspect("n").Waiters, 1)

		cancel(reason)
		err := first.result()
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		require.ErrorIs(w.t, err, reason)
		w.pass(time.Second)
		require.Len(w.t, w.inspect("n").Waiters, 1, "another one asks")
		w.release(held)
		for _, l := range others {
			require.NoError(w.t, l.result())
		}
		require.Len(w.t, w.inspect("n").Holders, 1)
		require.NoError(w.t, mu.RUnlock(w.ctx))
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.onlyTokensLeft()
	})
}

// A waiter whose context ends leaves the local queue, and those behind it need not wait for it.
func TestAWaiterThatLeavesLetsOthersPass(t *testing.T) {
	inFakeTime(t, func(w *world) {
		mu := w.process().RWMutex("n")
		require.NoError(w.t, mu.RLock(w.ctx))
		ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
		defer cancel()
		began := time.Now()
		writer := w.locking(ctx, mu.Lock)
		readers := []*locking{w.locking(w.ctx, mu.RLock), w.locking(w.ctx, mu.RLock)}
		require.True(w.t, readers[0].isWaiting())
		err := writer.result()
		require.Equal(w.t, 30*time.Second, time.Since(began))
		require.ErrorIs(w.t, err, context.DeadlineExceeded)
		e, ok := errors.AsType[*rwlock.AcquireError](err)
		require.True(w.t, ok)
		require.Equal(w.t, rwlock.Write, e.Mode)
		require.Equal(w.t, 30*time.Second, e.Waited)
		require.Equal(w.t, w.inspect("n").Holders[0].Owner, e.Holder.Owner)
		for _, l := range readers {
			require.NoError(w.t, l.result(), "they join the one that reads")
		}
		require.Len(w.t, w.inspect("n").Holders, 1)
		for range 3 {
			require.NoError(w.t, mu.RUnlock(w.ctx))
		}
		w.onlyTokensLeft()
	})
}

// WithMaxWait spans the waiting in the process and the waiting for Redis.
func TestMaxWaitSpansTheWholeWaiting(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const limit = 5 * time.Second
		p, q := w.process(), w.process()
		mu := p.RWMutex("n", rwlock.WithMaxWait(limit), rwlock.WithoutRenewal()) // each asks Redis
		require.NoError(w.t, mu.Lock(w.ctx))
		remote := q.queue("n", rwlock.Write)
		began := time.Now()
		next := w.locking(w.ctx, mu.Lock)
		behind := w.locking(w.ctx, mu.RLock)
		w.pass(3 * time.Second)
		require.NoError(w.t, mu.Unlock(w.ctx))
		lease := remote.granted()
		for _, l := range []*locking{next, behind} {
			err := l.result()
			require.Equal(w.t, limit, time.Since(began))
			require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
			require.ErrorContains(w.t, err, "WithMaxWait limit of 5s")
			require.NotErrorIs(w.t, err, context.DeadlineExceeded)
			e, ok := errors.AsType[*rwlock.AcquireError](err)
			require.True(w.t, ok)
			require.Equal(w.t, limit, e.Waited)
		}
		w.release(lease)
		w.onlyTokensLeft()
	})
}

// Without an answer of Redis the waiting ends as that of Locker.Lock does, also in the local queue.
func TestRWMutexEndsWithItsContextWhileRedisIsAway(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		require.NoError(w.t, mu.Unlock(w.ctx))
		p.link.Hold(testredis.Both)
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		began := time.Now()
		all := []*locking{w.locking(ctx, mu.RLock), w.locking(ctx, mu.RLock), w.locking(ctx, mu.Lock)}
		for i, l := range all {
			err := l.result()
			require.Equal(w.t, time.Second, time.Since(began))
			require.ErrorIs(w.t, err, context.DeadlineExceeded)
			require.Equal(w.t, i == 0, errors.Is(err, rwlock.ErrNoQuorum), "%d: %v", i, err)
		}
		p.link.Restore()
		require.NoError(w.t, mu.Lock(w.ctx))
		require.NoError(w.t, mu.Unlock(w.ctx))
	})
}

// Close fails those that wait in the process as well.
func TestCloseFailsTheWaitersOfAnRWMutex(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		waiting := []*locking{w.locking(w.ctx, mu.Lock), w.locking(w.ctx, mu.RLock)}
		require.NoError(w.t, p.Close())
		for _, l := range waiting {
			err := l.result()
			require.ErrorIs(w.t, err, rwlock.ErrClosed)
			require.ErrorContains(w.t, err, `"n"`)
		}
		require.NoError(w.t, mu.Unlock(w.ctx))
		require.ErrorIs(w.t, mu.Lock(w.ctx), rwlock.ErrClosed)
		require.ErrorIs(w.t, mu.TryRLock(w.ctx), rwlock.ErrClosed)
		w.onlyTokensLeft()
	})
}

// trouble takes the data and the link away in turns.
func (w *world) trouble(p *process, end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(1300 * time.Millisecond)
		w.mini.FlushAll()
		time.Sleep(900 * time.Millisecond)
		p.link.Blackhole(testredis.Both)
		time.Sleep(1500 * time.Millisecond)
		p.link.Restore()
	}
}

// Exclusion in the process does not depend on Redis: not on its data, its links or its speed.
func TestRWMutexExcludesInTheProcessWhateverRedisDoes(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process(rwlock.WithTTL(time.Second))
		mu := p.RWMutex("n")
		var inside, entered, lost atomic.Int64
		end := time.Now().Add(time.Minute)
		work := func(lock, unlock func(context.Context) error, weight int64, least int) {
			for i := 0; time.Now().Before(end); i++ {
				ctx, cancel := context.WithTimeout(w.ctx, time.Duration(least+i%7)*100*time.Millisecond)
				if lock(ctx) == nil {
					entered.Add(1)
					if n := inside.Add(weight); weight > 1 && n != weight || n > 1000 {
						w.t.Errorf("%d inside", n)
					}
					time.Sleep(time.Duration(i%11) * 40 * time.Millisecond)
					inside.Add(-weight)
					if errors.Is(unlock(w.ctx), rwlock.ErrLost) {
						lost.Add(1)
					}
				}
				cancel()
			}
		}
		var all []*locking
		for i := range 9 {
			all = append(all, w.locking(w.ctx, func(context.Context) error {
				if i < 3 {
					work(mu.Lock, mu.Unlock, 1000, i)
				} else {
					work(mu.RLock, mu.RUnlock, 1, i)
				}
				return nil
			}))
		}
		w.trouble(p, end)
		for _, l := range all {
			require.NoError(w.t, l.result())
		}
		require.Greater(w.t, entered.Load(), int64(50))
		require.Positive(w.t, lost.Load())
		require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrNotHeld)
		require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrNotHeld)
	})
}

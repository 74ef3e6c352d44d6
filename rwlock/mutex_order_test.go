package rwlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Goroutines of a process are served as they came, readers between two writers together and by one remote hold.
func TestRWMutexServesInTheOrderOfArrival(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, _ *process, mu *rwlock.RWMutex) {
		require.NoError(w, mu.Lock(w.Ctx))
		token := mu.Token()
		early := []*testkit.Call{w.Call(w.Ctx, mu.RLock), w.Call(w.Ctx, mu.RLock), w.Call(w.Ctx, mu.RLock)}
		writers := []*testkit.Call{w.Call(w.Ctx, mu.Lock), w.Call(w.Ctx, mu.Lock)}
		late := w.Call(w.Ctx, mu.RLock)
		require.Empty(w, w.Inspect("n").Waiters, "they wait in the process")

		require.NoError(w, mu.Unlock(w.Ctx))
		for _, l := range early {
			require.NoError(w, l.Result())
		}
		require.Len(w, w.Inspect("n").Holders, 1)
		require.Greater(w, mu.Token(), token)
		token = mu.Token()
		require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired, "a writer waits")
		for range early {
			require.True(w, writers[0].IsWaiting())
			require.NoError(w, mu.RUnlock(w.Ctx))
		}
		for i, l := range writers {
			require.NoError(w, l.Result())
			require.Greater(w, mu.Token(), token, "each writer has a token of its own")
			token = mu.Token()
			require.True(w, i > 0 || writers[1].IsWaiting())
			require.True(w, late.IsWaiting())
			require.NoError(w, mu.Unlock(w.Ctx))
		}
		require.NoError(w, late.Result())
		require.NoError(w, mu.RUnlock(w.Ctx))
		w.OnlyTokensLeft()
	}))
}

// WithMaxWait spans the waiting in the process and the waiting for Redis.
func TestMaxWaitSpansTheWholeWaiting(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const limit = 5 * time.Second
		p, q := w.Process(), w.Process()
		mu := p.RWMutex("n", rwlock.WithMaxWait(limit))
		require.NoError(w, mu.RLock(w.Ctx)) // whose lease serves no writer
		remote := q.Queue("n", rwlock.Write)
		began := time.Now()
		next := w.Call(w.Ctx, mu.Lock)
		behind := w.Call(w.Ctx, mu.RLock)
		w.Pass(3 * time.Second)
		require.NoError(w, mu.RUnlock(w.Ctx))
		lease := remote.Granted()
		for _, l := range []*testkit.Call{next, behind} {
			err := l.Result()
			require.Equal(w, limit, time.Since(began))
			fails(w, err, rwlock.ErrNotAcquired, "WithMaxWait limit of 5s")
			require.NotErrorIs(w, err, context.DeadlineExceeded)
			e := testkit.As[*rwlock.AcquireError](w, err)
			require.Equal(w, limit, e.Waited)
		}
		w.Release(lease)
		w.OnlyTokensLeft()
	})
}

// Close fails those that wait in the process as well.
func TestCloseFailsTheWaitersOfAnRWMutex(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, p *process, mu *rwlock.RWMutex) {
		require.NoError(w, mu.Lock(w.Ctx))
		waiting := []*testkit.Call{w.Call(w.Ctx, mu.Lock), w.Call(w.Ctx, mu.RLock)}
		require.NoError(w, p.Close())
		for _, l := range waiting {
			fails(w, l.Result(), rwlock.ErrClosed, `"n"`)
		}
		require.NoError(w, mu.Unlock(w.Ctx))
		require.ErrorIs(w, mu.Lock(w.Ctx), rwlock.ErrClosed)
		require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrClosed)
		w.OnlyTokensLeft()
	}))
}

// trouble takes the data and the link away in turns.
func trouble(w *world, p *process, end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(1300 * time.Millisecond)
		w.Mini.FlushAll()
		time.Sleep(900 * time.Millisecond)
		p.Link.Blackhole(testredis.Both)
		time.Sleep(1500 * time.Millisecond)
		p.Link.Restore()
	}
}

// Exclusion in the process does not depend on Redis: not on its data, its links or its speed.
func TestRWMutexExcludesInTheProcessWhateverRedisDoes(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(rwlock.WithTTL(time.Second))
		mu := p.RWMutex("n")
		var inside, entered, lost atomic.Int64
		end := time.Now().Add(time.Minute)
		work := func(lock, unlock func(context.Context) error, weight int64, least int) {
			for i := 0; time.Now().Before(end); i++ {
				ctx, cancel := context.WithTimeout(w.Ctx, time.Duration(least+i%7)*100*time.Millisecond)
				if lock(ctx) == nil {
					entered.Add(1)
					if n := inside.Add(weight); weight > 1 && n != weight || n > 1000 {
						w.Errorf("%d inside", n)
					}
					time.Sleep(time.Duration(i%11) * 40 * time.Millisecond)
					inside.Add(-weight)
					if errors.Is(unlock(w.Ctx), rwlock.ErrLost) {
						lost.Add(1)
					}
				}
				cancel()
			}
		}
		var all []*testkit.Call
		for i := range 9 {
			all = append(all, w.Call(w.Ctx, func(context.Context) error {
				if i < 3 {
					work(mu.Lock, mu.Unlock, 1000, i)
				} else {
					work(mu.RLock, mu.RUnlock, 1, i)
				}
				return nil
			}))
		}
		trouble(w, p, end)
		for _, l := range all {
			require.NoError(w, l.Result())
		}
		require.Greater(w, entered.Load(), int64(50))
		require.Positive(w, lost.Load())
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
	})
}

// One who unlocks what it has not locked is told so or takes another's place; the RWMutex stays usable.
func TestUnlockWithoutALockBesideOthers(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		mu := p.RWMutex("n", rwlock.WithLinger(w.TTL))
		const rounds = 200_000
		calls := func(err error) {
			if err != nil && !errors.Is(err, rwlock.ErrNotHeld) {
				w.Error(err)
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			for range rounds {
				calls(mu.Unlock(w.Ctx))
			}
		})
		all.Go(func() {
			for range rounds {
				calls(mu.Lock(w.Ctx))
				calls(mu.Unlock(w.Ctx))
			}
		})
		all.Wait()
		require.NoError(w, mu.Lock(w.Ctx))
		require.NotZero(w, mu.Token())
		require.NoError(w, mu.Context(w.Ctx).Err())
		require.NoError(w, mu.Unlock(w.Ctx))
	}))
}

package rwlock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// relock locks and unlocks once.
func relock(w *world, mu *rwlock.RWMutex) {
	w.t.Helper()
	require.NoError(w.t, mu.Lock(w.ctx))
	require.NoError(w.t, mu.Unlock(w.ctx))
}

// A lock that lingers is taken again without a command, for as long as that goes on, and is given back afterwards.
func TestALockThatLingersCostsNoCommand(t *testing.T) {
	everywhereAlone(t, func(w *world) {
		p := w.process()
		p.hasWaited()
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour), rwlock.WithTTL(time.Hour))
		relock(w, mu)
		p.link.ResetCalls()
		last := mu.Token()
		for range 300 {
			require.NoError(w.t, mu.Lock(w.ctx))
			require.Greater(w.t, mu.Token(), last)
			last = mu.Token()
			require.NoError(w.t, mu.Unlock(w.ctx))
			require.NoError(w.t, mu.TryRLock(w.ctx))
			require.Greater(w.t, mu.Token(), last, "readers are in under the same lease")
			last = mu.Token()
			require.NoError(w.t, mu.RLock(w.ctx))
			require.Equal(w.t, last, mu.Token())
			require.NoError(w.t, mu.RUnlock(w.ctx))
			require.NoError(w.t, mu.RUnlock(w.ctx))
		}
		require.Empty(w.t, sent(p.link))
		require.Equal(w.t, 1, p.Stats().Lingering)
		if !raceDetector {
			require.LessOrEqual(w.t, testing.AllocsPerRun(100, func() { relock(w, mu) }), 2.0)
		}
	})
}

func TestALockLingersForItsTime(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const linger = 25 * time.Second
		p := w.process()
		mu := p.RWMutex("n", rwlock.WithLinger(linger))
		began := time.Now()
		relock(w, mu)
		hold := w.inspect("n").Holders[0].Hold
		w.pass(linger - time.Second)
		relock(w, mu)
		w.pass(linger - time.Millisecond)
		holders := w.inspect("n").Holders
		require.Len(w.t, holders, 1, "renewed while it lingers")
		require.Equal(w.t, hold, holders[0].Hold)
		require.Equal(w.t, 1, p.Stats().Lingering)
		require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrNotHeld)
		require.Zero(w.t, mu.Token())
		require.ErrorIs(w.t, context.Cause(mu.Context(w.ctx)), rwlock.ErrNotHeld)
		w.pass(2 * time.Millisecond)
		require.Empty(w.t, w.inspect("n").Holders)
		require.Zero(w.t, p.Stats().Lingering)
		require.Equal(w.t, 2*linger-time.Second+time.Millisecond, time.Since(began))
		w.onlyTokensLeft()
		relock(w, mu)
		w.pass(linger + time.Millisecond)
		w.onlyTokensLeft()
	})
}

// What ends it at once.
func TestTheEndOfLingering(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		p.hasWaited()
		began := time.Now()
		lingers := func() *rwlock.RWMutex {
			mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
			relock(w, mu)
			require.Equal(w.t, 1, p.Stats().Lingering)
			return mu
		}
		notAnyMore := func() {
			w.settle()
			require.Zero(w.t, p.Stats().Lingering)
			require.Equal(w.t, began, time.Now(), "at once")
		}

		mu := lingers()
		lease, err := q.TryLock(w.ctx, "n")
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired, "a single attempt does not wait")
		require.Nil(w.t, lease)
		w.release(q.lock("n", rwlock.Read))
		notAnyMore()

		require.NoError(w.t, mu.RLock(w.ctx))
		require.NoError(w.t, mu.RUnlock(w.ctx))
		require.Equal(w.t, 1, p.Stats().Lingering)
		w.release(q.lock("n", rwlock.Read))
		require.Equal(w.t, 1, p.Stats().Lingering, "readers beside readers")
		w.release(q.lock("n", rwlock.Write))
		notAnyMore()

		require.NoError(w.t, mu.RLock(w.ctx))
		require.NoError(w.t, mu.RUnlock(w.ctx))
		relock(w, mu) // what lingers for reading is given back for a writer
		require.Equal(w.t, rwlock.Write, w.inspect("n").Mode)
		other := p.RWMutex("n", rwlock.WithTTL(time.Second))
		relock(w, other)
		notAnyMore()

		lingers()
		w.release(p.lock("n", rwlock.Write))
		notAnyMore()
	})
}

func TestCloseEndsLingering(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		relock(w, p.RWMutex("n", rwlock.WithLinger(time.Hour)))
		require.Len(w.t, w.inspect("n").Holders, 1)
		require.NoError(w.t, p.Close())
		require.Zero(w.t, p.Stats().Lingering)
		w.onlyTokensLeft()
	})
}

// A waiter whose message was lost ends it with the next renewal.
func TestLingeringEndsThoughTheMessageIsLost(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		p.hasWaited()
		p.link.DropPushes(func(push []string) bool { return strings.HasSuffix(push[2], "wanted") })
		relock(w, p.RWMutex("n", rwlock.WithLinger(time.Hour)))
		began := time.Now()
		w.release(q.lock("n", rwlock.Write))
		require.LessOrEqual(w.t, time.Since(began), w.ttl/3)
		require.Positive(w.t, time.Since(began))
	})
}

// A lock that is lost while it lingers is taken anew.
func TestALossEndsLingering(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
		relock(w, mu)
		w.flushAll()
		w.pass(w.ttl)
		require.Zero(w.t, p.Stats().Lingering)
		require.Equal(w.t, uint64(1), p.Stats().Lost)
		relock(w, mu)
		require.Equal(w.t, 1, p.Stats().Lingering)
		require.Len(w.t, w.inspect("n").Holders, 1)

		p.link.Blackhole(testredis.Both) // the deadline passes, and no timer tells of it before the next Lock
		w.pass(2 * w.ttl)
		p.link.Restore()
		p.link.Cut()
		relock(w, mu)
		require.Equal(w.t, 1, p.Stats().Lingering)
	})
}

// Inspect shows one holder for a process, and in that process how many are in.
func TestInspectShowsACohort(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
		shown := func(by *process) rwlock.Holder {
			s, err := by.Inspect(w.ctx, "n")
			require.NoError(w.t, err)
			require.Len(w.t, s.Holders, 1)
			require.True(w.t, s.Holders[0].Cohort)
			return s.Holders[0]
		}
		for range 3 {
			require.NoError(w.t, mu.RLock(w.ctx))
		}
		require.Equal(w.t, 3, shown(p).Count)
		refused, ok := errors.AsType[*rwlock.AcquireError](mu.TryLock(w.ctx))
		require.True(w.t, ok)
		require.Equal(w.t, 3, refused.Holder.Count)
		require.False(w.t, shown(p).Lingering)
		require.Equal(w.t, 1, shown(w.observer).Count)
		for range 3 {
			require.NoError(w.t, mu.RUnlock(w.ctx))
		}
		require.Zero(w.t, shown(p).Count)
		require.True(w.t, shown(p).Lingering)
		require.False(w.t, shown(w.observer).Lingering)
		held := p.lock("m", rwlock.Write)
		s, err := p.Inspect(w.ctx, "m")
		require.NoError(w.t, err)
		require.False(w.t, s.Holders[0].Cohort)
		w.release(held)
	})
}

func TestLingerIsForAnRWMutexAndNeedsRenewal(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		_, err := p.Lock(w.ctx, "n", rwlock.WithLinger(time.Second))
		refusedOption(w.t, err, "WithLinger", "1s", "is for an RWMutex")
		refusedOption(w.t, p.RWMutex("n", rwlock.WithLinger(-1)).Lock(w.ctx), "WithLinger", "-1ns", "positive")
		refusedOption(w.t, p.RWMutex("n", rwlock.WithLinger(0)).Lock(w.ctx), "WithLinger", "0s", "positive")
		refusedOption(w.t, p.RWMutex("n", rwlock.WithLinger(1), rwlock.WithoutRenewal()).Lock(w.ctx),
			"WithLinger", "1ns", "WithoutRenewal")
		byDefault := w.process(rwlock.WithLinger(time.Minute))
		w.release(byDefault.lock("n", rwlock.Write))
		w.release(byDefault.lock("n", rwlock.Write, rwlock.WithoutRenewal())) // a rule of an RWMutex does not apply
		_, err = byDefault.Lock(w.ctx, "n", rwlock.WithLinger(time.Minute))
		refusedOption(w.t, err, "WithLinger", "1m0s", "is for an RWMutex")
		relock(w, byDefault.RWMutex("n"))
		require.Equal(w.t, 1, byDefault.Stats().Lingering)
		relock(w, byDefault.RWMutex("n", rwlock.WithMeta("x")))
	})
}

// slowParent is a context that a child takes a time to leave, once.
type slowParent struct {
	context.Context
	takes atomic.Int64
}

// Done is asked for by a child that ends: it is taken out of what ends with the parent.
func (c *slowParent) Done() <-chan struct{} {
	time.Sleep(time.Duration(c.takes.Swap(0)))
	return c.Context.Done()
}

// The timer of an earlier use fires while the lock is unlocked, and comes to it right after: the lock lingers for its
// time all the same. Unlock takes as long as the end of a context of the section does.
func TestLingeringBeginsAnewWithEachUnlock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const linger = time.Second
		p := w.process()
		mu := p.RWMutex("n", rwlock.WithLinger(linger))
		parent := &slowParent{Context: w.ctx}
		relock(w, mu)
		w.pass(linger / 2)
		require.NoError(w.t, mu.Lock(w.ctx))
		_ = mu.Context(parent)
		parent.takes.Store(int64(linger / 2))
		began := time.Now()
		require.NoError(w.t, mu.Unlock(w.ctx))
		require.Equal(w.t, linger/2, time.Since(began), "the timer fires now")
		w.settle()
		require.Equal(w.t, 1, p.Stats().Lingering)
		w.pass(linger + time.Millisecond)
		require.Zero(w.t, p.Stats().Lingering)
		w.onlyTokensLeft()
	})
}

// A timer that fires while the lock is in use does not count for the time after that: the last to leave sets one.
func TestALockLingersForItsTimeAfterItWasInUse(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const linger = 20 * time.Second
		p := w.process()
		mu := p.RWMutex("n", rwlock.WithLinger(linger))
		relock(w, mu)
		w.pass(linger / 2)
		relock(w, mu)
		w.pass(linger / 4)
		require.NoError(w.t, mu.Lock(w.ctx))
		w.pass(linger / 2) // the timer of the first use fires
		require.NoError(w.t, mu.Unlock(w.ctx))
		w.pass(linger - time.Millisecond)
		require.Equal(w.t, 1, p.Stats().Lingering)
		w.pass(2 * time.Millisecond)
		require.Zero(w.t, p.Stats().Lingering)
		w.onlyTokensLeft()
	})
}

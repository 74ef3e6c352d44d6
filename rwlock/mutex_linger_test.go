package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// relock locks and unlocks once.
func relock(w *world, mu *rwlock.RWMutex) {
	w.Helper()
	succeed(w, mu.Lock, mu.Unlock)
}

// reread locks and unlocks once for reading.
func reread(w *world, mu *rwlock.RWMutex) {
	w.Helper()
	succeed(w, mu.RLock, mu.RUnlock)
}

// A lock that lingers is taken again without a command, for as long as that goes on, and is given back afterwards.
func TestALockThatLingersCostsNoCommand(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		hasWaited(p)
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour), rwlock.WithTTL(time.Hour))
		relock(w, mu)
		commands := commandsAfterWaiting(p.Link)
		last := mu.Token()
		for range 300 {
			require.NoError(w, mu.Lock(w.Ctx))
			require.Greater(w, mu.Token(), last)
			last = mu.Token()
			succeed(w, mu.Unlock, mu.TryRLock)
			require.Greater(w, mu.Token(), last, "readers are in under the same lease")
			last = mu.Token()
			require.NoError(w, mu.RLock(w.Ctx))
			require.Equal(w, last, mu.Token())
			succeed(w, mu.RUnlock, mu.RUnlock)
		}
		require.Empty(w, commands())
		require.Equal(w, 1, p.Stats().Lingering)
		if !testkit.RaceDetector {
			require.LessOrEqual(w, testing.AllocsPerRun(100, func() { relock(w, mu) }), 2.0)
		}
	}))
}

func TestALockLingersForItsTime(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const linger = 25 * time.Second
		p := w.Process()
		mu := p.RWMutex("n", rwlock.WithLinger(linger))
		began := time.Now()
		relock(w, mu)
		hold := w.Inspect("n").Holders[0].Hold
		w.Pass(linger - time.Second)
		relock(w, mu)
		w.Pass(linger - time.Millisecond)
		holders := w.Inspect("n").Holders
		require.Len(w, holders, 1, "renewed while it lingers")
		require.Equal(w, hold, holders[0].Hold)
		require.Equal(w, 1, p.Stats().Lingering)
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
		require.Zero(w, mu.Token())
		require.ErrorIs(w, context.Cause(mu.Context(w.Ctx)), rwlock.ErrNotHeld)
		w.Pass(2 * time.Millisecond)
		require.Empty(w, w.Inspect("n").Holders)
		require.Zero(w, p.Stats().Lingering)
		require.Equal(w, 2*linger-time.Second+time.Millisecond, time.Since(began))
		w.OnlyTokensLeft()
		relock(w, mu)
		w.Pass(linger + time.Millisecond)
		w.OnlyTokensLeft()
	})
}

// What ends it at once.
func TestTheEndOfLingering(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		hasWaited(p)
		began := time.Now()
		lingers := func() *rwlock.RWMutex {
			mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
			relock(w, mu)
			require.Equal(w, 1, p.Stats().Lingering)
			return mu
		}
		notAnyMore := func() {
			w.Settle()
			require.Zero(w, p.Stats().Lingering)
			require.Equal(w, began, time.Now(), "at once")
		}

		mu := lingers()
		lease, err := q.TryLock(w.Ctx, "n")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired, "a single attempt does not wait")
		require.Nil(w, lease)
		w.Release(q.Take("n", rwlock.Read))
		notAnyMore()

		reread(w, mu)
		require.Equal(w, 1, p.Stats().Lingering)
		w.Release(q.Take("n", rwlock.Read))
		require.Equal(w, 1, p.Stats().Lingering, "readers beside readers")
		w.Release(q.Take("n", rwlock.Write))
		notAnyMore()

		reread(w, mu)
		relock(w, mu) // what lingers for reading is given back for a writer
		require.Equal(w, rwlock.Write, w.Inspect("n").Mode)
		relock(w, p.RWMutex("n", rwlock.WithTTL(time.Second)))
		notAnyMore()

		lingers()
		w.Release(p.Take("n", rwlock.Write))
		notAnyMore()
	}))
}

func TestCloseEndsLingering(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		relock(w, p.RWMutex("n", rwlock.WithLinger(time.Hour)))
		require.Len(w, w.Inspect("n").Holders, 1)
		require.NoError(w, p.Close())
		require.Zero(w, p.Stats().Lingering)
		w.OnlyTokensLeft()
	}))
}

// A goroutine that wants a lock that lingers for readers gives up, at whatever step of its call, while another client
// comes to wait for the lock, or the lease ends: nothing lingers on.
func TestLingeringEndsBesideAGoroutineThatGivesUp(t *testing.T) {
	t.Parallel() // it computes while others wait
	testkit.Each(t, map[string]func(w *world, p, q *process) *pending{
		"another client waits": func(w *world, _, q *process) *pending {
			other := q.Acquire(w.Ctx, "n", rwlock.Write)
			w.Settle()
			return other
		},
		"Close":            func(w *world, p, _ *process) *pending { require.NoError(w, p.Close()); return nil },
		"its time is over": func(w *world, _, _ *process) *pending { w.Pass(10 * w.TTL); return nil },
		"a loss": func(w *world, _, _ *process) *pending {
			w.FlushAll()
			w.Pass(w.TTL)
			return nil
		},
	}, func(t *testing.T, happens func(w *world, p, q *process) *pending) {
		for step, reached := int64(1), true; reached; step++ {
			inFakeTime(t, withTwo(func(w *world, p, q *process) {
				hasWaited(p)
				mu := p.RWMutex("n", rwlock.WithLinger(10*w.TTL))
				reread(w, mu)
				ctx, cancel := context.WithCancel(w.Ctx)
				defer cancel()
				var other *pending
				stepped := &steppedContext{Context: ctx, at: step, call: func() { other = happens(w, p, q); cancel() }}
				err := mu.Lock(stepped)
				if reached = stepped.calls.Load() >= step; !reached {
					require.NoError(w, err)
					require.NoError(w, mu.Unlock(w.Ctx))
					return
				}
				if err == nil {
					_ = mu.Unlock(w.Ctx)
				}
				if other != nil {
					began := time.Now()
					w.Release(other.Granted())
					require.Zero(w, time.Since(began), "step %d", step)
				}
				w.Pass(time.Second)
				if err != nil { // else it has been locked, and lingers anew
					require.Zero(w, p.Stats().Lingering, "step %d: %v", step, err)
				}
			}))
		}
	})
}

// A machine was suspended while a lock lingered: no timer has noticed that the lease has ended, and Lock asks Redis.
func TestALockThatLingeredOverASuspensionIsTakenAnew(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := testkit.NewWallClock(0)
		mu := w.Process(clock.Option()).RWMutex("n", rwlock.WithLinger(time.Hour))
		for _, jump := range []time.Duration{w.TTL, time.Hour} {
			relock(w, mu)
			clock.Step(jump)
			require.NoError(w, mu.Lock(w.Ctx))
			require.NoError(w, mu.Context(w.Ctx).Err())
			require.NoError(w, mu.Unlock(w.Ctx))
			clock.Step(jump)
			reread(w, mu)
		}
	})
}

// Inspect shows one holder for a process, and in that process how many are in.
func TestInspectShowsASharedHold(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
		shown := func(by *process) rwlock.Holder {
			s := expect.NoError(by.Inspect(w.Ctx, "n")).In(w)
			require.Len(w, s.Holders, 1)
			require.True(w, s.Holders[0].Shared)
			return s.Holders[0]
		}
		succeed(w, mu.RLock, mu.RLock, mu.RLock)
		require.Equal(w, 3, shown(p).Count)
		require.Equal(w, 3, testkit.As[*rwlock.AcquireError](w, mu.TryLock(w.Ctx)).Holder.Count)
		require.False(w, shown(p).Lingering)
		require.Equal(w, 1, shown(w.Observer()).Count)
		succeed(w, mu.RUnlock, mu.RUnlock, mu.RUnlock)
		require.Zero(w, shown(p).Count)
		require.True(w, shown(p).Lingering)
		require.False(w, shown(w.Observer()).Lingering)
		held := p.Take("m", rwlock.Write)
		require.False(w, expect.NoError(p.Inspect(w.Ctx, "m")).In(w).Holders[0].Shared)
		w.Release(held)
	}))
}

// WithLinger as a default is for each RWMutex and for nothing else. WithoutRenewal as a default is for all but those.
func TestLingerIsForAnRWMutexAndWithoutRenewalIsNot(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		refusedOption(w.T, p.RWMutex("n", rwlock.WithLinger(-1)).Lock(w.Ctx), "WithLinger", "-1ns", "positive")
		refusedOption(w.T, p.RWMutex("n", rwlock.WithLinger(0)).Lock(w.Ctx), "WithLinger", "0s", "positive")
		refusedOption(w.T, p.RWMutex("n", rwlock.WithoutRenewal()).Lock(w.Ctx), "WithoutRenewal", "set", "RWMutex")
		byDefault := w.Process(rwlock.WithLinger(time.Minute), rwlock.WithoutRenewal())
		w.Release(byDefault.Take("n", rwlock.Write))
		relock(w, byDefault.RWMutex("n"))
		w.Pass(2 * w.TTL)
		require.Equal(w, 1, byDefault.Stats().Lingering, "renewed")
		lease := byDefault.Take("m", rwlock.Write)
		w.Pass(2 * w.TTL)
		require.Equal(w, rwlock.ReasonExpired, w.Loss(lease.Err()).Reason)
		relock(w, byDefault.RWMutex("n", rwlock.WithMeta("x")))
	}))
}

// A single attempt is not refused by what lingered in its own process, though the release is still on its way.
func TestASingleAttemptWaitsForTheEndOfLingering(t *testing.T) {
	const linger, late = time.Second, 50 * time.Millisecond
	plain := func(p *process) func(context.Context) error { return p.RWMutex("n").TryLock }
	type attempt struct {
		passes time.Duration
		try    func(p *process) func(context.Context) error
	}
	eachInFakeTime(t, map[string]attempt{
		"at the end of the time": {linger, func(p *process) func(context.Context) error {
			return p.RWMutex("n", rwlock.WithLinger(linger)).TryLock
		}},
		"at the end of the time, with other options": {linger, plain},
		"with other options":                         {linger / 2, plain},
		"without an RWMutex, at the end of the time": {linger, func(p *process) func(context.Context) error {
			return func(ctx context.Context) error { return expect.ErrorOf(p.TryLock(ctx, "n")) }
		}},
	}, func(w *world, c attempt) {
		p := w.Process()
		relock(w, p.RWMutex("n", rwlock.WithLinger(linger)))
		p.Link.DelayDir(testredis.ToServer, late)
		w.Pass(c.passes)
		require.NoError(w, c.try(p)(w.Ctx))
	})
}

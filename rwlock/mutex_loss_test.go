package rwlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Whoever lost the lock stands in it until it unlocks, with its own token, and keeps others of the process out.
func TestRWMutexStaysWithWhoeverLostIt(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		limit := rwlock.WithMaxHold(300 * time.Millisecond)
		mu := p.RWMutex("cfg", limit)
		require.NoError(w, mu.Lock(w.Ctx))
		lost, ctx := mu.Token(), mu.Context(w.Ctx)
		next := w.Call(w.Ctx, p.RWMutex("cfg", limit).Lock)
		reader := w.Call(w.Ctx, mu.RLock)
		w.Pass(w.TTL)

		require.Equal(w, rwlock.ReasonMaxHold, w.Loss(context.Cause(ctx)).Reason)
		require.True(w, next.IsWaiting())
		require.True(w, reader.IsWaiting())
		require.Equal(w, lost, mu.Token())
		require.ErrorIs(w, mu.Context(w.Ctx).Err(), context.Canceled, "the context of a lock that was lost has ended")
		require.ErrorIs(w, mu.TryLock(w.Ctx), rwlock.ErrNotAcquired)
		expect.Fails(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired, "has not unlocked it")

		loss := w.Loss(mu.Unlock(w.Ctx))
		require.Equal(w, rwlock.ReasonMaxHold, loss.Reason)
		require.Equal(w, lost, loss.Token)
		require.NoError(w, next.Result())
		require.Greater(w, mu.Token(), lost)
		require.NoError(w, mu.Context(w.Ctx).Err())
		require.NoError(w, mu.Unlock(w.Ctx))
		require.NoError(w, reader.Result())
		require.NoError(w, mu.RUnlock(w.Ctx))
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
		require.Zero(w, mu.Token())
		w.OnlyTokensLeft()
	}))
}

// The late write of one that lost the lock carries its own token, and the guard refuses it.
func TestALateWriteUnderALostRWMutexIsStale(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		mu, other := p.RWMutex("cfg"), q.RWMutex("cfg")
		var store fencing.Watermark
		write := func(m *rwlock.RWMutex) error {
			f := fencing.Fence{Resource: "cfg", Token: m.Token(), Mode: fencing.Write}
			return store.Do(w.Ctx, f, func(context.Context) error { return nil })
		}
		require.NoError(w, mu.Lock(w.Ctx))
		p.Link.Blackhole(testredis.Both)
		next := w.Call(w.Ctx, mu.Lock)
		w.Pass(2 * w.TTL)
		require.NoError(w, other.Lock(w.Ctx))
		require.NoError(w, write(other))
		require.NoError(w, other.Unlock(w.Ctx))
		p.Link.Restore()
		w.Pass(w.TTL)

		require.True(w, next.IsWaiting())
		require.ErrorIs(w, write(mu), fencing.ErrStale)
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
		require.NoError(w, next.Result())
		require.NoError(w, write(mu))
		require.NoError(w, mu.Unlock(w.Ctx))
	}))
}

// A missing Unlock keeps the process out, which its waiters are told, and nobody else: no lease is renewed for ever.
func TestAMissingUnlockAfterALossConcernsItsProcessOnly(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		mu := p.RWMutex("s")
		require.NoError(w, mu.Lock(w.Ctx))
		w.FlushAll()
		w.UntilClosed(mu.Context(w.Ctx).Done())

		err := w.Call(w.Soon(w.TTL), mu.Lock).Result()
		expect.Fails(w, err, rwlock.ErrNotAcquired, context.DeadlineExceeded)
		require.NotErrorIs(w, err, rwlock.ErrLost, "it was another goroutine that lost it")
		require.ErrorContains(w, err, "has not unlocked it")

		w.Release(q.Take("s", rwlock.Write))
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
		relock(w, mu)
		w.Release(q.Take("s", rwlock.Write))
		w.OnlyTokensLeft()
	}))
}

// Two readers that overlap all the time never end each other; one that stays beyond the limit is ended.
func TestOverlappingReadersDoNotEndEachOther(t *testing.T) {
	for name, opt := range map[string]rwlock.LockOption{
		"WithMaxHold": rwlock.WithMaxHold(time.Second), "by default": rwlock.WithTTL(time.Second),
	} {
		subtestInFakeTime(t, name, func(w *world) {
			mu := w.Process(rwlock.WithTTL(time.Second)).RWMutex("cfg", opt)
			const rounds, hold = 25, 100 * time.Millisecond
			require.NoError(w, mu.RLock(w.Ctx))
			first := mu.Token()
			for range rounds {
				time.Sleep(hold / 2)
				require.NoError(w, mu.RLock(w.Ctx))
				require.Equal(w, first, mu.Token(), "one remote hold")
				ctx := mu.Context(w.Ctx)
				time.Sleep(hold / 2)
				require.NoError(w, mu.RUnlock(w.Ctx)) // of the one that came before
				require.NoError(w, ctx.Err())
				require.Len(w, w.Inspect("cfg").Holders, 1)
			}
			ctx := mu.Context(w.Ctx)
			w.Pass(2 * time.Second)
			if name == "by default" {
				require.NoError(w, ctx.Err())
				require.NoError(w, mu.RUnlock(w.Ctx))
				w.OnlyTokensLeft()
				return
			}
			require.Equal(w, rwlock.ReasonMaxHold, w.Loss(context.Cause(ctx)).Reason)
			require.Empty(w, w.Inspect("cfg").Holders, "it does not block others")
			require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired)
			require.Equal(w, rwlock.ReasonMaxHold, w.Loss(mu.RUnlock(w.Ctx)).Reason)
			reread(w, mu)
			w.OnlyTokensLeft()
		})
	}
}

// A reader that leaves others behind after a suspension is told of the loss, and so are those after it.
func TestEveryReaderHearsOfALossByAPause(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := testkit.NewWallClock(0)
		mu := w.Process(clock.Option()).RWMutex("n")
		succeed(w, mu.RLock, mu.RLock, mu.RLock)
		clock.Step(w.TTL)
		for range 3 {
			require.Equal(w, rwlock.ReasonPaused, w.Loss(mu.RUnlock(w.Ctx)).Reason)
		}
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
		relock(w, mu)
	})
}

// A lease that Close has given back serves nobody of the process any more, from before the RWMutex hears of it.
func TestALeaseThatCloseHasGivenBackServesNobody(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, p *process, mu *rwlock.RWMutex) {
		require.NoError(w, mu.Lock(w.Ctx))
		closed := make(chan struct{})
		require.False(w, rwlock.ServesAfter(mu, func() { defer close(closed); _ = p.Close() }))
		w.UntilClosed(closed)
		require.ErrorIs(w, context.Cause(mu.Context(w.Ctx)), rwlock.ErrReleased)
		require.NoError(w, mu.Unlock(w.Ctx))
		require.ErrorIs(w, mu.Lock(w.Ctx), rwlock.ErrClosed)
		w.OnlyTokensLeft()
	}))
}

// No timer is left for a lock that lingered once its lease has ended, by Close, by a loss or given back.
func TestNoTimerOfLingeringOutlivesTheLease(t *testing.T) {
	eachInFakeTime(t, map[string]func(w *world, p *process, mu *rwlock.RWMutex){
		"Close": func(w *world, p *process, _ *rwlock.RWMutex) { require.NoError(w, p.Close()) },
		"Close while somebody is in": func(w *world, p *process, mu *rwlock.RWMutex) {
			require.NoError(w, mu.Lock(w.Ctx))
			require.NoError(w, p.Close())
		},
		"a loss":          func(w *world, _ *process, _ *rwlock.RWMutex) { w.FlushAll(); w.Pass(w.TTL) },
		"another process": func(w *world, _ *process, _ *rwlock.RWMutex) { w.Release(w.Process().Take("n", rwlock.Write)) },
	}, func(w *world, end func(*world, *process, *rwlock.RWMutex)) {
		p := w.Process()
		hasWaited(p)
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
		relock(w, mu)
		end(w, p, mu)
		w.Settle()
		require.False(w, rwlock.LingerTimer(mu))
	})
}

// A reader that comes after a leader's late answer does not enter with the token of a hold that was lost.
func TestAReaderDoesNotEnterALostSection(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.TTL = time.Second
		p, third := w.Process(), w.Process()
		makeListen(p)
		held := w.Process().Take("n", rwlock.Write)
		mu := p.RWMutex("n")
		p.Link.StallCommits()
		leader := w.Call(w.Ctx, mu.RLock)
		w.Release(held)                 // handed to the leader, whose request is not answered
		w.Pass(1500 * time.Millisecond) // the hold was not renewed, and has expired
		lease := third.Take("n", rwlock.Write)
		written := lease.Token()
		w.Release(lease)
		reader := w.Call(w.Ctx, mu.RLock)
		p.Link.ResumeCommits()
		require.NoError(t, leader.Result())
		require.NoError(t, reader.Result())
		require.Greater(t, mu.Token(), written)
	})
}

// A section of Do has the fence of its own lock, and the lock is free again however its function ends.
func TestRWMutexDo(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		mu := p.RWMutex("cfg")
		var last fencing.Token
		section := func(mode rwlock.Mode) func(context.Context) error {
			return func(ctx context.Context) error {
				fence := expect.NoError(fencing.Require(ctx, "cfg")).In(w)
				require.Equal(w, mode, fence.Mode)
				require.Equal(w, mu.Token(), fence.Token)
				require.Greater(w, fence.Token, last)
				last = fence.Token
				require.ErrorIs(w, mu.Lock(ctx), rwlock.ErrNested)
				return context.Canceled
			}
		}
		require.Equal(w, context.Canceled, mu.Do(w.Ctx, section(rwlock.Write)))
		require.Equal(w, context.Canceled, mu.RDo(w.Ctx, section(rwlock.Read)))
		require.NoError(w, mu.RDo(w.Ctx, func(context.Context) error {
			require.NoError(w, mu.TryRLock(w.Ctx), "together with other readers")
			return mu.RUnlock(w.Ctx)
		}))
		require.Panics(w, func() { _ = mu.Do(w.Ctx, func(context.Context) error { panic("in the section") }) })
		require.ErrorIs(w, mu.Do(w.Ctx, nil), rwlock.ErrOption)
		misused := mu.RDo(w.Ctx, func(context.Context) error { return mu.Upgrade(w.Ctx) })
		require.ErrorIs(w, misused, rwlock.ErrNotHeld, "it has left another mode behind")
		require.NoError(w, mu.Unlock(w.Ctx))

		ended, cancel := context.WithCancel(w.Ctx)
		require.NoError(w, mu.Do(ended, func(context.Context) error { cancel(); return nil }))
		require.ErrorIs(w, mu.RDo(ended, func(context.Context) error { panic("it runs") }), context.Canceled)
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
		w.OnlyTokensLeft()
	}))
}

// A limit that is reached while its holder unlocks is a loss, and whoever is next has a lease of its own.
func TestALimitThatIsReachedWhileTheLockIsUnlocked(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var now atomic.Pointer[func()] // what happens while the clock is read
		start := time.Now()
		clock := settings.LockerOption(func(l *settings.Locker) {
			l.Clock = func() (time.Duration, time.Time) {
				if happen := now.Swap(nil); happen != nil {
					(*happen)()
				}
				return time.Since(start), time.Now()
			}
		})
		p, q := w.Process(clock), w.Process()
		mu := p.RWMutex("n", rwlock.WithMaxHold(time.Second))
		require.NoError(w, mu.Lock(w.Ctx))
		ctx := mu.Context(w.Ctx)
		next := w.Call(w.Ctx, mu.Lock)
		reach := func() { <-ctx.Done() }
		// Unlock reads the clock, looks at the limit, and reads the clock again when it asks for the lease.
		arm := func() { now.Store(&reach) }
		now.Store(&arm)
		require.Equal(w, rwlock.ReasonMaxHold, w.Loss(mu.Unlock(w.Ctx)).Reason)
		require.EqualValues(w, 1, p.Stats().Lost.Total(), "it is no release")
		require.NoError(w, next.Result())
		w.Settle()
		require.NoError(w, context.Cause(mu.Context(w.Ctx)))
		require.ErrorIs(w, expect.ErrorOf(q.TryLock(w.Ctx, "n")), rwlock.ErrNotAcquired)
		require.NoError(w, mu.Unlock(w.Ctx))
		w.OnlyTokensLeft()
	})
}

// A downgrade without an answer leaves the caller writing, and one of a lock that is lost leaves it to Unlock.
func TestADowngradeOfAnRWMutexThatIsNotAnswered(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, p *process, mu *rwlock.RWMutex) {
		require.NoError(w, mu.Lock(w.Ctx))
		p.Link.Blackhole(testredis.Both)
		require.ErrorIs(w, mu.Downgrade(w.Ctx), rwlock.ErrNoQuorum)
		require.NoError(w, context.Cause(mu.Context(w.Ctx)), "it still writes")
		w.Pass(w.TTL)
		require.ErrorIs(w, mu.Downgrade(w.Ctx), rwlock.ErrLost)
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
	}))
}

// An upgrade waits for a reader of its own process no longer than WithMaxWait, and reads on. WithMaxHold counts on.
func TestAnUpgradeOfAnRWMutexHasItsLimits(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const limit = 4 * time.Second
		for want, opt := range map[error]rwlock.MutexOption{
			rwlock.ErrNotAcquired: rwlock.WithMaxWait(limit), rwlock.ErrLost: rwlock.WithMaxHold(limit),
		} {
			mu, began := w.Process().RWMutex(want.Error(), opt), time.Now()
			succeed(w, mu.RLock, mu.RLock)
			token, ctx := mu.Token(), mu.Context(w.Ctx)
			require.ErrorIs(w, mu.Upgrade(w.Ctx), want)
			require.Equal(w, limit, time.Since(began))
			require.Equal(w, token, mu.Token())
			require.Equal(w, want == rwlock.ErrLost, ctx.Err() != nil)
			require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
			require.Equal(w, want == rwlock.ErrLost, mu.RUnlock(w.Ctx) != nil)
		}
	})
}

// A loss is told with the token that the section has shown, not with the last one of its block.
func TestALossOfAnRWMutexIsToldWithTheTokenOfItsSection(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for name, opts := range map[string][]rwlock.MutexOption{"gone": nil, "limit": {rwlock.WithMaxHold(time.Second)}} {
			var d testkit.Trace
			mu := w.Process(d.Option()).RWMutex(name, opts...)
			require.NoError(w, mu.Lock(w.Ctx))
			if opts == nil {
				w.FlushAll()
			}
			w.Pass(w.TTL)
			require.Equal(w, mu.Token(), d.Last("lost").Loss.Token)
			require.Equal(w, mu.Token(), w.Loss(mu.Unlock(w.Ctx)).Token)
		}
	})
}

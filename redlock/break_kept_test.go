package redlock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// works takes the lock x, and returns a context under it and what gives the lock back.
type works func(w *world, p *process) (ctx context.Context, release func() error)

func underLease(lease *rwlock.Lease, w *world) (context.Context, func() error) {
	return lease.Context(w.Ctx), func() error { return lease.Release(w.Ctx) }
}

// minHold is longer than a TTL: a hold that is broken leaves nothing of it.
var minHold = rwlock.WithMinHold(time.Hour)

var allWorks = map[string]works{
	"write": func(w *world, p *process) (context.Context, func() error) {
		return underLease(p.Take("x", rwlock.Write, minHold), w)
	},
	"read": func(w *world, p *process) (context.Context, func() error) {
		return underLease(p.Take("x", rwlock.Read), w)
	},
	"converted": func(w *world, p *process) (context.Context, func() error) {
		lease := p.Take("x", rwlock.Read)
		require.NoError(w, lease.Upgrade(w.Ctx))
		return underLease(lease, w)
	},
	"adopted": func(w *world, p *process) (context.Context, func() error) {
		return underLease(expect.NoError(p.Adopt(w.Ctx, detached(w, w.Process(), rwlock.Write))).In(w), w)
	},
	"several locks": func(w *world, p *process) (context.Context, func() error) {
		all := expect.NoError(p.LockAll(w.Ctx, rwlock.Writes("x", "y"))).In(w)
		return all.Context(w.Ctx), func() error { return all.Release(w.Ctx) }
	},
	"reentrant": func(w *world, p *process) (context.Context, func() error) {
		locks, owner := reentrant.New(p.Locker), reentrant.WithOwner(w.Ctx)
		outer := expect.NoError(locks.Lock(owner, "x")).In(w)
		inner := expect.NoError(locks.Lock(outer.Context(owner), "x")).In(w)
		return inner.Context(owner), func() error {
			require.ErrorIs(w, inner.Release(w.Ctx), rwlock.ErrLost)
			return outer.Release(w.Ctx)
		}
	},
	"RWMutex": func(w *world, p *process) (context.Context, func() error) {
		mu := p.RWMutex("x", rwlock.WithLinger(time.Hour))
		require.NoError(w, mu.Lock(w.Ctx))
		return mu.Context(w.Ctx), func() error { return mu.Unlock(w.Ctx) }
	},
	"readers of an RWMutex": func(w *world, p *process) (context.Context, func() error) {
		mu := p.RWMutex("x")
		require.NoError(w, mu.RLock(w.Ctx))
		require.NoError(w, mu.RLock(w.Ctx))
		return mu.Context(w.Ctx), func() error {
			require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrLost)
			return mu.RUnlock(w.Ctx)
		}
	},
}

// eachWork runs the test for each kind of work, on one master and on three.
func eachWork(t *testing.T, test func(w *world, p *process, work works)) {
	for name, work := range allWorks {
		t.Run(name, func(t *testing.T) {
			onOneAndThree(t, func(w *world) { test(w, warm(w), work) })
		})
	}
}

// brokenUnder has an operator break the lock of the work. Its context ends by the next renewal, and nobody has come in.
func brokenUnder(
	w *world, ctx context.Context, opts ...rwlock.BreakOption,
) (broken *testkit.Call, next *testkit.Pending) {
	operator := warm(w)
	next = warm(w).Queue("x", rwlock.Write)
	hold := w.Inspect("x").Holders[0].Hold
	broken = w.Call(w.Ctx, func(ctx context.Context) error { return operator.Break(ctx, "x", hold, "stuck", opts...) })
	w.UntilClosed(ctx.Done())
	w.Settle()
	require.Equal(w, len(opts) > 0, testkit.As[*rwlock.BrokenError](w, context.Cause(ctx)).Now)
	return broken, next
}

// A broken lock stays with its holder, who is told, until it is released.
func TestABrokenLockIsKeptUntilItsRelease(t *testing.T) {
	eachWork(t, func(w *world, p *process, work works) {
		ctx, release := work(w, p)
		broken, next := brokenUnder(w, ctx)
		told := time.Now()
		time.Sleep(w.TTL / 3)
		require.True(w, next.IsWaiting())
		require.True(w, broken.IsWaiting())
		require.ErrorIs(w, release(), rwlock.ErrLost)
		w.Release(next.Granted())
		require.NoError(w, broken.Result())
		require.Less(w, time.Since(told), w.TTL/2)
	})
}

// A broken lock that is not released is free at the deadline that it had, and not before.
func TestABrokenLockIsKeptUntilItsDeadline(t *testing.T) {
	eachWork(t, func(w *world, p *process, work works) {
		ctx, _ := work(w, p)
		var deadline time.Time
		for lease := range p.Leases() {
			deadline = lease.Deadline
		}
		broken, next := brokenUnder(w, ctx)
		lease := next.Granted()
		require.NoError(w, broken.Result())
		require.False(w, time.Now().Before(deadline), "%v before it", time.Until(deadline))
		require.Less(w, time.Since(deadline), w.TTL)
		w.Release(lease)
	})
}

// BreakNow, BreakOnceHeard and Close do not wait for the release.
func TestABrokenLockThatIsNotKept(t *testing.T) {
	eachWork(t, func(w *world, p *process, work works) {
		for _, opts := range [][]rwlock.BreakOption{{rwlock.BreakNow()}, {rwlock.BreakOnceHeard()}, nil} {
			ctx, release := work(w, p)
			begun := time.Now()
			broken, next := brokenUnder(w, ctx, opts...)
			if opts == nil {
				require.NoError(w, p.Close())
			}
			w.Release(next.Granted())
			require.NoError(w, broken.Result())
			require.Less(w, time.Since(begun), w.TTL/2)
			require.ErrorIs(w, release(), rwlock.ErrLost)
		}
	})
}

// What no caller relies on is not kept: the second hold of a conversion, a lock of several of which another one is
// waited for, and the lock of an RWMutex that nobody uses.
func TestABrokenHoldWithoutAHolderIsNotKept(t *testing.T) {
	for name, take := range map[string]func(w *world, p *process){
		"conversion": func(w *world, p *process) {
			mu := p.RWMutex("x")
			require.NoError(w, mu.RLock(w.Ctx))
			require.NoError(w, mu.RLock(w.Ctx))
			upgrade := w.Call(w.Ctx, func(ctx context.Context) error { return mu.Upgrade(ctx) })
			w.Eventually("the second hold", func() bool { return len(w.Inspect("x").Holders) == 2 })
			require.True(w, upgrade.IsWaiting())
		},
		"several locks": func(w *world, p *process) {
			q := warm(w)
			q.Take("y", rwlock.Write)
			w.Call(w.Ctx, func(ctx context.Context) error {
				_, err := p.LockAll(ctx, rwlock.Writes("x", "y"))
				return err
			})
			w.UntilWaiting("y", 1)
		},
		"idle": func(w *world, p *process) {
			mu := p.RWMutex("x", rwlock.WithLinger(time.Hour))
			require.NoError(w, mu.Lock(w.Ctx))
			require.NoError(w, mu.Unlock(w.Ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onOneAndThree(t, func(w *world) {
				operator := warm(w)
				take(w, warm(w))
				all := w.Inspect("x").Holders
				last := all[slices.IndexFunc(all, func(h rwlock.Holder) bool { return h.Mode == rwlock.Write })]
				begun := time.Now()
				require.NoError(w, operator.Break(w.Ctx, "x", last.Hold, "in between"))
				require.Less(w, time.Since(begun), w.TTL/2)
			})
		})
	}
}

// A waiter is handed the lock and the message is lost. If an operator breaks the hold then, the waiter gives it back as
// soon as a refresh has told it.
func TestABrokenGrantThatItsWaiterHasNotHeardOfIsNotKept(t *testing.T) {
	onOneAndThree(t, func(w *world) {
		operator, p := warm(w), warm(w)
		lease := warm(w).Take("x", rwlock.Write)
		waiter := p.Queue("x", rwlock.Write)
		w.Pass(100 * time.Millisecond) // it is listening now
		for _, link := range p.Links {
			link.DropPushes(func([]string) bool { return true })
		}
		w.Release(lease)
		w.Settle()
		holds := w.Inspect("x").Holders
		require.Len(w, holds, 1)
		begun := time.Now()
		require.NoError(w, operator.Break(w.Ctx, "x", holds[0].Hold, "not heard"))
		require.ErrorContains(w, testkit.As[*rwlock.BrokenError](w, waiter.Result()), "not heard")
		w.Release(expect.NoError(operator.Lock(w.Ctx, "x")).In(w))
		require.Less(w, time.Since(begun), 2*time.Second, "sooner than the end of the hand-off, 3 s")
	})
}

package rwlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// The lease asks who waits only once the upgrade itself has left the queue: readers of the process join at once.
func TestAnUpgradeThatIsGivenUpDoesNotWaitForItself(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		p.WarmUp()
		mu := p.RWMutex("n")
		require.NoError(w, mu.RLock(w.Ctx))
		other := q.Take("n", rwlock.Read)
		ctx, cancel := context.WithCancel(w.Ctx)
		upgrade := w.Call(ctx, mu.Upgrade)
		drain := fillPipeline(p, q)
		cancel()
		require.ErrorIs(w, upgrade.Result(), context.Canceled)
		drain()
		require.Empty(w, w.Inspect("n").Waiters)
		require.NoError(w, mu.TryRLock(w.Ctx))
		require.NoError(w, mu.RUnlock(w.Ctx))

		w.Pass(w.TTL)
		require.NoError(w, mu.TryRLock(w.Ctx))
		w.Release(other)
	})
}

// fillPipeline has as many calls under way as a process may have: releases of holds that it has given up while another
// process has their locks. What comes now is sent together, once drain is called.
func fillPipeline(p *process, other *process) (drain func()) {
	const batchesAtOnce = 4
	var cancels []context.CancelFunc
	var waiting []*pending
	for i := range batchesAtOnce {
		name := fmt.Sprint("busy ", i)
		other.Take(name, rwlock.Write)
		ctx, cancel := context.WithCancel(p.W.Ctx)
		cancels, waiting = append(cancels, cancel), append(waiting, p.Acquire(ctx, name, rwlock.Write))
		p.W.UntilWaiting(name, 1)
	}
	p.Link.Hold(testredis.Both)
	for i, cancel := range cancels {
		cancel()
		waiting[i].Wait()
		p.W.Settle()
	}
	return func() {
		p.Link.Restore()
		p.W.Settle()
	}
}

// While a reader upgrades, whoever has no lock is told so.
func TestAConversionWithoutALockBesideAnUpgrade(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		mu := p.RWMutex("n")
		other := q.Take("n", rwlock.Read)
		require.NoError(w, mu.RLock(w.Ctx))
		upgrade := w.Call(w.Ctx, mu.Upgrade)
		require.ErrorIs(w, mu.Downgrade(w.Ctx), rwlock.ErrNotHeld)
		require.ErrorIs(w, mu.Upgrade(w.Ctx), rwlock.ErrNotHeld, "the only reader upgrades already")
		w.Release(other)
		require.NoError(w, upgrade.Result())
		require.NoError(w, mu.Unlock(w.Ctx))
	})
}

// What is lost while it is upgraded is lost, and is unlocked as what it was.
func TestAnUpgradeOfAnRWMutexThatIsLost(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		limit := rwlock.WithMaxHold(4 * time.Second)
		for _, other := range []*rwlock.RWMutex{p.RWMutex("n", limit), q.RWMutex("n")} {
			mu := p.RWMutex("n", limit)
			require.NoError(w, mu.RLock(w.Ctx))
			token := mu.Token()
			began := time.Now()
			require.NoError(w, other.RLock(w.Ctx))
			loss := w.Loss(mu.Upgrade(w.Ctx))
			require.Equal(w, 4*time.Second, time.Since(began))
			require.Equal(w, rwlock.ReasonMaxHold, loss.Reason)
			require.Equal(w, token, loss.Token)
			require.ErrorIs(w, mu.Upgrade(w.Ctx), rwlock.ErrLost)
			require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
			require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrLost)
			_ = other.RUnlock(w.Ctx)
			w.Pass(w.TTL)
			w.OnlyTokensLeft()
		}

		mu := p.RWMutex("n")
		require.NoError(w, mu.Lock(w.Ctx))
		p.Link.Blackhole(testredis.Both)
		require.ErrorIs(w, mu.Downgrade(w.Ctx), rwlock.ErrNoQuorum)
		require.NoError(w, context.Cause(mu.Context(w.Ctx)), "it still writes")
		w.Pass(w.TTL)
		require.ErrorIs(w, mu.Downgrade(w.Ctx), rwlock.ErrLost)
		p.Link.Restore()
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
	})
}

// The context may end with another lease, whose release says nothing of the locker.
func TestAnUpgradeWhoseContextEndsWithAnotherLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		mu, other := p.RWMutex("n"), q.RWMutex("n")
		require.NoError(w, mu.RLock(w.Ctx))
		require.NoError(w, other.RLock(w.Ctx))
		lease := p.Take("m", rwlock.Write)
		upgrade := w.Call(lease.Context(w.Ctx), mu.Upgrade)
		w.Pass(time.Second)
		w.Release(lease)
		err := upgrade.Result()
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.NotErrorIs(w, err, rwlock.ErrClosed)
		require.NoError(w, other.RUnlock(w.Ctx))
		require.NoError(w, mu.RUnlock(w.Ctx), "it has read on")
	})
}

// Close ends an upgrade, whatever it waits for.
func TestCloseEndsAnUpgradeOfAnRWMutex(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for _, beside := range []string{"here", "elsewhere", "under a write lease"} {
			p, q := w.Process(rwlock.WithLinger(time.Minute)), w.Process()
			mu, other := p.RWMutex("n"), q.RWMutex("n")
			if beside == "under a write lease" {
				require.NoError(w, mu.Lock(w.Ctx))
				require.NoError(w, mu.Unlock(w.Ctx))
			}
			require.NoError(w, mu.RLock(w.Ctx))
			if beside != "elsewhere" {
				other = mu
			}
			require.NoError(w, other.RLock(w.Ctx))
			upgrade := w.Call(w.Ctx, mu.Upgrade)
			require.True(w, upgrade.IsWaiting(), beside)
			require.NoError(w, p.Close())
			require.ErrorIs(w, upgrade.Result(), rwlock.ErrClosed, beside)
			require.NoError(w, other.RUnlock(w.Ctx), beside)
			require.NoError(w, mu.RUnlock(w.Ctx), beside)
		}
		w.OnlyTokensLeft()
	})
}

// A single attempt to upgrade may be the first to notice that the lease has ended. It is a loss also beside others.
func TestTryUpgradeNoticesALoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := testkit.NewWallClock(0)
		mu := w.Process(clock.Option()).RWMutex("n")
		require.NoError(w, mu.RLock(w.Ctx))
		require.NoError(w, mu.RLock(w.Ctx))
		clock.Step(2 * w.TTL)
		require.ErrorIs(w, mu.TryUpgrade(w.Ctx), rwlock.ErrLost)
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrLost)
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrLost)
	})
}

package rwlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Whoever gives up goes on reading, and readers join it again.
func TestAnUpgradeOfAnRWMutexThatIsGivenUp(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		limit := rwlock.WithMaxWait(5 * time.Second)
		for _, place := range []struct {
			name    string
			in      []*rwlock.RWMutex // who reads beside it
			waiting int               // on the server
		}{
			{"readers here", []*rwlock.RWMutex{p.RWMutex("n", limit)}, 0},
			{"readers elsewhere", []*rwlock.RWMutex{q.RWMutex("n")}, 1},
			{"readers here and elsewhere", []*rwlock.RWMutex{p.RWMutex("n", limit), q.RWMutex("n")}, 1},
		} {
			mu := p.RWMutex("n", limit)
			require.NoError(w.t, mu.RLock(w.ctx))
			for _, other := range place.in {
				require.NoError(w.t, other.RLock(w.ctx))
			}
			ctx, token := mu.Context(w.ctx), mu.Token()
			began := time.Now()
			upgrade := w.locking(w.ctx, mu.Upgrade)
			require.Len(w.t, w.inspect("n").Waiters, place.waiting, place.name)
			w.pass(time.Second)
			reader := w.locking(w.ctx, mu.RLock)
			err := upgrade.result()
			require.Equal(w.t, 5*time.Second, time.Since(began), place.name)
			require.ErrorIs(w.t, err, rwlock.ErrNotAcquired, place.name)
			require.ErrorContains(w.t, err, "WithMaxWait limit of 5s", place.name)
			require.Equal(w.t, token, mu.Token(), place.name)
			require.NoError(w.t, ctx.Err(), place.name)
			require.NoError(w.t, reader.result(), place.name)
			require.NoError(w.t, mu.RLock(w.ctx), place.name)
			w.settle()
			require.Empty(w.t, w.inspect("n").Waiters, place.name)
			require.Equal(w.t, rwlock.Read, w.inspect("n").Mode, place.name)
			for _, other := range append(place.in, mu, mu) {
				require.NoError(w.t, other.RUnlock(w.ctx), place.name)
			}
			require.NoError(w.t, mu.Upgrade(w.ctx), place.name)
			require.NoError(w.t, mu.Unlock(w.ctx), place.name)
			w.onlyTokensLeft()
		}
	})
}

// A writer elsewhere who has come behind an upgrade that is given up is heard of.
func TestWhoWaitsBehindAnUpgradeThatIsGivenUp(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.RLock(w.ctx))
		other := q.lock("n", rwlock.Read)
		ctx, cancel := context.WithCancel(w.ctx)
		upgrade := w.locking(ctx, mu.Upgrade)
		writer := q.queue("n", rwlock.Write)
		cancel()
		require.ErrorIs(w.t, upgrade.result(), context.Canceled)
		hears(w, mu)
		w.release(other)
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.release(writer.granted())
		w.onlyTokensLeft()
	})
}

// The same where its message came while the upgrade was being given up: the lease asks.
func TestWhoWaitsBehindAnUpgradeIsAskedFor(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.RLock(w.ctx))
		other := q.lock("n", rwlock.Read)
		ctx, cancel := context.WithCancel(w.ctx)
		upgrade := w.locking(ctx, mu.Upgrade)
		writer := q.queue("n", rwlock.Write)
		p.link.DropPushes(func([]string) bool { return true }) // as if it had come before the news were forgotten
		cancel()
		require.ErrorIs(w.t, upgrade.result(), context.Canceled)
		hears(w, mu)
		p.link.DropPushes(nil)
		w.release(other)
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.release(writer.granted())
		w.onlyTokensLeft()
	})
}

// The lease does not ask who waits before the upgrade itself has left the queue, also where the release of that waits
// behind other calls: readers of the process join at once again.
func TestAnUpgradeThatIsGivenUpDoesNotWaitForItself(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		p.warmUp()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.RLock(w.ctx))
		other := q.lock("n", rwlock.Read)
		ctx, cancel := context.WithCancel(w.ctx)
		upgrade := w.locking(ctx, mu.Upgrade)
		drain := p.fillPipeline(q)
		cancel()
		require.ErrorIs(w.t, upgrade.result(), context.Canceled)
		drain()
		require.Empty(w.t, w.inspect("n").Waiters)
		require.NoError(w.t, mu.TryRLock(w.ctx))
		require.NoError(w.t, mu.RUnlock(w.ctx))

		w.pass(w.ttl)
		require.NoError(w.t, mu.TryRLock(w.ctx))
		w.release(other)
	})
}

// fillPipeline has as many calls under way as a process may have: releases of holds that it has given up while another
// process has their locks. What comes now is sent together, once drain is called.
func (p *process) fillPipeline(other *process) (drain func()) {
	const batchesAtOnce = 4
	var cancels []context.CancelFunc
	var waiting []*pending
	for i := range batchesAtOnce {
		name := fmt.Sprint("busy ", i)
		other.lock(name, rwlock.Write)
		ctx, cancel := context.WithCancel(p.w.ctx)
		cancels, waiting = append(cancels, cancel), append(waiting, p.acquire(ctx, name, rwlock.Write))
		p.w.untilWaiting(name, 1)
	}
	p.link.Hold(testredis.Both)
	for i, cancel := range cancels {
		cancel()
		waiting[i].wait()
		p.w.settle()
	}
	return func() {
		p.link.Restore()
		p.w.settle()
	}
}

// A single attempt to upgrade may be the first to notice that the lease has ended. It is a loss also beside others.
func TestTryUpgradeNoticesALoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := newWallClock(0)
		mu := w.process(clock.option()).RWMutex("n")
		require.NoError(w.t, mu.RLock(w.ctx))
		require.NoError(w.t, mu.RLock(w.ctx))
		clock.step(2 * w.ttl)
		require.ErrorIs(w.t, mu.TryUpgrade(w.ctx), rwlock.ErrLost)
		require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrLost)
		require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrLost)
	})
}

// While a reader upgrades, whoever has no lock is told so.
func TestAConversionWithoutALockBesideAnUpgrade(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		mu := p.RWMutex("n")
		other := q.lock("n", rwlock.Read)
		require.NoError(w.t, mu.RLock(w.ctx))
		upgrade := w.locking(w.ctx, mu.Upgrade)
		require.ErrorIs(w.t, mu.Downgrade(w.ctx), rwlock.ErrNotHeld)
		require.ErrorIs(w.t, mu.Upgrade(w.ctx), rwlock.ErrNotHeld, "the only reader upgrades already")
		w.release(other)
		require.NoError(w.t, upgrade.result())
		require.NoError(w.t, mu.Unlock(w.ctx))
	})
}

// What is lost while it is upgraded is lost, and is unlocked as what it was.
func TestAnUpgradeOfAnRWMutexThatIsLost(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		limit := rwlock.WithMaxHold(4 * time.Second)
		for _, other := range []*rwlock.RWMutex{p.RWMutex("n", limit), q.RWMutex("n")} {
			mu := p.RWMutex("n", limit)
			require.NoError(w.t, mu.RLock(w.ctx))
			token := mu.Token()
			began := time.Now()
			require.NoError(w.t, other.RLock(w.ctx))
			loss := w.loss(mu.Upgrade(w.ctx))
			require.Equal(w.t, 4*time.Second, time.Since(began))
			require.Equal(w.t, rwlock.MaxHold, loss.Reason)
			require.Equal(w.t, token, loss.Token)
			require.ErrorIs(w.t, mu.Upgrade(w.ctx), rwlock.ErrLost)
			require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrNotHeld)
			require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrLost)
			_ = other.RUnlock(w.ctx)
			w.pass(w.ttl)
			w.onlyTokensLeft()
		}

		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		p.link.Blackhole(testredis.Both)
		require.ErrorIs(w.t, mu.Downgrade(w.ctx), rwlock.ErrNoQuorum)
		require.NoError(w.t, context.Cause(mu.Context(w.ctx)), "it still writes")
		w.pass(w.ttl)
		require.ErrorIs(w.t, mu.Downgrade(w.ctx), rwlock.ErrLost)
		p.link.Restore()
		require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrNotHeld)
		require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrLost)
	})
}

// The context may end with another lease, whose release says nothing of the locker.
func TestAnUpgradeWhoseContextEndsWithAnotherLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		mu, other := p.RWMutex("n"), q.RWMutex("n")
		require.NoError(w.t, mu.RLock(w.ctx))
		require.NoError(w.t, other.RLock(w.ctx))
		lease := p.lock("m", rwlock.Write)
		upgrade := w.locking(lease.Context(w.ctx), mu.Upgrade)
		w.pass(time.Second)
		w.release(lease)
		err := upgrade.result()
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		require.NotErrorIs(w.t, err, rwlock.ErrClosed)
		require.NoError(w.t, other.RUnlock(w.ctx))
		require.NoError(w.t, mu.RUnlock(w.ctx), "it has read on")
	})
}

// Close ends an upgrade, whatever it waits for.
func TestCloseEndsAnUpgradeOfAnRWMutex(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for _, beside := range []string{"here", "elsewhere", "under a write lease"} {
			p, q := w.process(rwlock.WithLinger(time.Minute)), w.process()
			mu, other := p.RWMutex("n"), q.RWMutex("n")
			if beside == "under a write lease" {
				require.NoError(w.t, mu.Lock(w.ctx))
				require.NoError(w.t, mu.Unlock(w.ctx))
			}
			require.NoError(w.t, mu.RLock(w.ctx))
			if beside != "elsewhere" {
				other = mu
			}
			require.NoError(w.t, other.RLock(w.ctx))
			upgrade := w.locking(w.ctx, mu.Upgrade)
			require.True(w.t, upgrade.isWaiting(), beside)
			require.NoError(w.t, p.Close())
			require.ErrorIs(w.t, upgrade.result(), rwlock.ErrClosed, beside)
			require.NoError(w.t, other.RUnlock(w.ctx), beside)
			require.NoError(w.t, mu.RUnlock(w.ctx), beside)
		}
		w.onlyTokensLeft()
	})
}

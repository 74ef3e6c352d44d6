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

// A writer elsewhere who has come behind an upgrade that is given up is heard of, or the lease asks where its message
// came while the upgrade was being given up.
func TestWhoWaitsBehindAnUpgradeThatIsGivenUp(t *testing.T) {
	for name, lost := range map[string]bool{"is heard of": false, "is asked for": true} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p, q := w.Process(), w.Process()
				mu := p.RWMutex("n")
				require.NoError(w, mu.RLock(w.Ctx))
				other := q.Take("n", rwlock.Read)
				ctx, cancel := context.WithCancel(w.Ctx)
				upgrade := w.Call(ctx, mu.Upgrade)
				writer := q.Queue("n", rwlock.Write)
				p.Link.DropPushes(func([]string) bool { return lost }) // as if it had come before the news were forgotten
				cancel()
				require.ErrorIs(w, upgrade.Result(), context.Canceled)
				hears(w, mu)
				p.Link.DropPushes(nil)
				w.Release(other)
				require.NoError(w, mu.RUnlock(w.Ctx))
				w.Release(writer.Granted())
				w.OnlyTokensLeft()
			})
		})
	}
}

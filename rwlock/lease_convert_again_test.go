package rwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A conversion is given up though the server has granted it, and its release is late. The next one does not meet it.
func TestAConversionOvertakesTheReleaseOfTheLast(t *testing.T) {
	for _, c := range []struct {
		name string
		from rwlock.Mode
		run  func(*rwlock.Lease, context.Context) error
	}{
		{"TryUpgrade", rwlock.Read, (*rwlock.Lease).TryUpgrade},
		{"Upgrade", rwlock.Read, (*rwlock.Lease).Upgrade},
		{"Downgrade", rwlock.Write, (*rwlock.Lease).Downgrade},
	} {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.process()
				lease := p.lock("n", c.from)
				p.link.DelayDir(testredis.ToClient, 100*time.Millisecond)
				require.ErrorIs(w.t, c.run(lease, soonOver(w)), context.DeadlineExceeded)
				require.Equal(w.t, c.from, lease.Mode())
				require.NoError(w.t, c.run(lease, w.ctx))
				require.NotEqual(w.t, c.from, lease.Mode())
				w.eventually("they are released", func() bool { return len(w.inspect("n").Holders) == 1 })
				p.link.DelayDir(testredis.ToClient, 0)
				require.NoError(w.t, lease.Renew(w.ctx))
				w.release(lease)
				w.pass(w.ttl)
				w.onlyTokensLeft()
			})
		})
	}
}

// A reader that upgrades is cut off, and passed over when its turn comes. Another one comes to upgrade meanwhile: the
// first is told when it is back, and neither waits for the other.
func TestAnUpgradeThatWasPassedOverMeetsAnother(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		first, second := p.lock("n", rwlock.Read), q.lock("n", rwlock.Read)
		passedOver := w.upgrading(w.ctx, first)
		w.untilWaiting("n", 1)
		p.die()
		w.release(second)
		third := q.lock("n", rwlock.Read)
		upgrade := w.upgrading(w.ctx, third)
		w.untilWaiting("n", 2)
		p.link.Restore()
		require.ErrorIs(w.t, passedOver.result(), rwlock.ErrUpgrade)
		require.NoError(w.t, first.Err(), "it reads on")
		w.release(first)
		require.NoError(w.t, upgrade.result())
		w.release(third)
		w.pass(w.ttl)
		w.onlyTokensLeft()
	})
}

// Goroutines that share a write lease may all upgrade it at once: it does nothing, so nobody is in the way of another.
func TestUpgradesThatDoNothingAreNotRefused(t *testing.T) {
	inFakeTime(t, func(w *world) {
		lease := w.process().lock("n", rwlock.Write)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 2000 {
					if err := lease.Upgrade(w.ctx); err != nil {
						w.t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		w.release(lease)
	})
}

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
				p := w.Process()
				lease := p.Take("n", c.from)
				p.Link.DelayDir(testredis.ToClient, 100*time.Millisecond)
				require.ErrorIs(w, c.run(lease, soonOver(w)), context.DeadlineExceeded)
				require.Equal(w, c.from, lease.Mode())
				require.NoError(w, c.run(lease, w.Ctx))
				require.NotEqual(w, c.from, lease.Mode())
				w.Eventually("they are released", func() bool { return len(w.Inspect("n").Holders) == 1 })
				p.Link.DelayDir(testredis.ToClient, 0)
				require.NoError(w, lease.Renew(w.Ctx))
				w.Release(lease)
				w.Pass(w.TTL)
				w.OnlyTokensLeft()
			})
		})
	}
}

// A reader that upgrades is cut off, and passed over when its turn comes. Another one comes to upgrade meanwhile: the
// first is told when it is back, and neither waits for the other.
func TestAnUpgradeThatWasPassedOverMeetsAnother(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		first, second := p.Take("n", rwlock.Read), q.Take("n", rwlock.Read)
		passedOver := upgrading(w, w.Ctx, first)
		w.UntilWaiting("n", 1)
		p.Die()
		w.Release(second)
		third := q.Take("n", rwlock.Read)
		upgrade := upgrading(w, w.Ctx, third)
		w.UntilWaiting("n", 2)
		p.Link.Restore()
		require.ErrorIs(w, passedOver.Result(), rwlock.ErrUpgrade)
		require.NoError(w, first.Err(), "it reads on")
		w.Release(first)
		require.NoError(w, upgrade.Result())
		w.Release(third)
		w.Pass(w.TTL)
		w.OnlyTokensLeft()
	})
}

// Goroutines that share a write lease may all upgrade it at once: it does nothing, so nobody is in the way of another.
func TestUpgradesThatDoNothingAreNotRefused(t *testing.T) {
	inFakeTime(t, func(w *world) {
		lease := w.Process().Take("n", rwlock.Write)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 2000 {
					if err := lease.Upgrade(w.Ctx); err != nil {
						w.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		w.Release(lease)
	})
}

package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// upgrading is a call of Upgrade under way.
func upgrading(w *world, ctx context.Context, lease *rwlock.Lease) *testkit.Call {
	return w.Call(ctx, lease.Upgrade)
}

// A lease goes from reading to writing and back, with a larger token each time, and is the same lease all along.
func TestALeaseIsUpgradedAndDowngraded(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Read)
		ctx, done, ended := lease.Context(w.Ctx), lease.Done(), watch(lease)
		last := lease.Token()
		for range 3 {
			for _, step := range []struct {
				convert func(context.Context) error
				mode    rwlock.Mode
			}{{lease.Upgrade, rwlock.Write}, {lease.Upgrade, rwlock.Write}, {lease.Downgrade, rwlock.Read}} {
				before := lease.Mode()
				require.NoError(w, step.convert(w.Ctx))
				require.Equal(w, step.mode, lease.Mode())
				if before == step.mode {
					require.Equal(w, last, lease.Token(), "it did nothing")
				} else {
					require.Greater(w, lease.Token(), last)
				}
				last = lease.Token()
				fence, ok := fencing.FromContext(ctx, "n")
				require.True(w, ok)
				require.Equal(w, lease.Fence(), fence)
				require.NoError(w, lease.Err())
				require.NoError(w, lease.Renew(w.Ctx))
				require.NoError(w, ctx.Err())
				w.Eventually("one hold is left", func() bool { return len(w.Inspect("n").Holders) == 1 })
				require.Equal(w, step.mode, w.Inspect("n").Mode)
			}
		}
		require.False(w, ended.before(time.Now()))
		require.Equal(w, 1, p.Stats().Held)
		w.Release(lease)
		w.UntilClosed(done)
		w.UntilClosed(ctx.Done())
		require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
		require.ErrorIs(w, lease.Upgrade(w.Ctx), rwlock.ErrReleased)
		require.Zero(w, p.Stats().Held)
		w.Eventually("only tokens are left", w.HasOnlyTokens)
	})
}

// A reader that upgrades waits for the other readers, before all others who wait, and a second one is told at once.
func TestAnUpgradeWaitsForTheOtherReaders(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.Process(), w.Process()
		first, second := p.Take("n", rwlock.Read), q.Take("n", rwlock.Read)
		writer := q.Queue("n", rwlock.Write)
		upgrade := upgrading(w, w.Ctx, first)
		w.UntilWaiting("n", 2)
		reader := q.Queue("n", rwlock.Read)
		require.ErrorIs(w, second.Upgrade(w.Ctx), rwlock.ErrUpgrade)
		require.NoError(w, second.Err(), "it still reads")
		require.ErrorIs(w, first.Upgrade(w.Ctx), rwlock.ErrUpgrade, "a call is under way")
		require.NoError(w, first.Err())
		require.Equal(w, rwlock.Read, first.Mode())

		w.Release(second)
		require.NoError(w, upgrade.Result())
		require.Equal(w, rwlock.Write, first.Mode())
		require.True(w, writer.IsWaiting())
		require.NoError(w, first.Downgrade(w.Ctx))
		require.True(w, reader.IsWaiting(), "behind the writer")
		w.Release(first)
		w.Release(writer.Granted())
		w.Release(reader.Granted())
		w.Eventually("only tokens are left", w.HasOnlyTokens)
	})
}

// Whoever upgrades once more after giving up does not meet its own last attempt as a rival, though it may overtake that
// one's release.
func TestAnUpgradeOvertakesTheReleaseOfTheLast(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		lease, other := p.Take("n", rwlock.Read), q.Take("n", rwlock.Read)
		for range 5 {
			require.ErrorIs(w, lease.Upgrade(soonOver(w)), context.DeadlineExceeded)
		}
		refused, ok := errors.AsType[*rwlock.AcquireError](lease.TryUpgrade(w.Ctx))
		require.True(w, ok)
		require.NotNil(w, refused.Holder)
		require.Equal(w, other.Owner(), refused.Holder.Owner)
		upgrade := upgrading(w, w.Ctx, lease)
		w.UntilWaiting("n", 1)
		w.Release(other)
		require.NoError(w, upgrade.Result())
		w.Release(lease)
		w.Pass(w.TTL)
		w.OnlyTokensLeft()
	})
}

// A refused upgrade names another reader as the one in its way.
func TestARefusedUpgradeNamesAnother(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.Process()
		for i := range 6 {
			var readers []*rwlock.Lease
			for range 3 {
				lease, err := p.RLock(w.Ctx, "n")
				require.NoError(w, err)
				readers = append(readers, lease)
			}
			upgrading := readers[i%3]
			refused, ok := errors.AsType[*rwlock.AcquireError](upgrading.TryUpgrade(w.Ctx))
			require.True(w, ok)
			require.NotNil(w, refused.Holder)
			require.NotEqual(w, upgrading.Owner(), refused.Holder.Owner)
			for _, lease := range readers {
				w.Release(lease)
			}
		}
	})
}

// Readers who wait are let in by a downgrade.
func TestADowngradeLetsReadersIn(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.Process(), w.Process()
		lease := p.Take("n", rwlock.Write)
		readers := []*pending{q.Queue("n", rwlock.Read), q.Queue("n", rwlock.Read)}
		require.NoError(w, lease.Downgrade(w.Ctx))
		for _, r := range readers {
			r.Granted()
		}
		require.NoError(w, lease.Err())
		require.ErrorIs(w, lease.Upgrade(soonOver(w)), context.DeadlineExceeded)
		require.NoError(w, lease.Err())
		for _, r := range readers {
			w.Release(r.Lease)
		}
		require.NoError(w, lease.Upgrade(w.Ctx))
		w.Release(lease)
		w.Eventually("only tokens are left", w.HasOnlyTokens)
	})
}

func soonOver(w *world) context.Context {
	ctx, cancel := context.WithTimeout(w.Ctx, 50*time.Millisecond)
	w.Cleanup(cancel)
	return ctx
}

// Whoever gives up goes on reading, whatever the upgrade had come to.
func TestAnUpgradeThatIsGivenUpKeepsTheReadLock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		limited := p.Take("n", rwlock.Read, rwlock.WithMaxWait(3*time.Second))
		other := q.Take("n", rwlock.Read)
		began := time.Now()
		err := limited.Upgrade(w.Ctx)
		require.Equal(w, 3*time.Second, time.Since(began))
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.ErrorContains(w, err, "WithMaxWait limit of 3s")
		token := limited.Token()
		w.Release(other)
		w.Pass(3 * w.TTL)
		require.NoError(w, limited.Err())
		require.Equal(w, token, limited.Token())

		p.Link.Hold(testredis.ToClient) // granted, and nobody hears of it
		require.ErrorIs(w, limited.Upgrade(soonOver(w)), context.DeadlineExceeded)
		p.Link.Restore()
		w.Pass(2 * w.TTL)
		require.NoError(w, limited.Err())
		require.Equal(w, rwlock.Read, limited.Mode())
		require.NoError(w, limited.Upgrade(w.Ctx))
		require.Greater(w, limited.Token(), token)
		w.Release(limited)
		w.Pass(w.TTL)
		w.OnlyTokensLeft()
	})
}

// A lease that is lost while it waits for its upgrade is lost.
func TestAnUpgradeEndsWithTheLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		lease := p.Take("n", rwlock.Read, rwlock.WithMaxHold(4*time.Second))
		other := q.Take("n", rwlock.Read)
		began := time.Now()
		loss := w.Loss(lease.Upgrade(w.Ctx))
		require.Equal(w, 4*time.Second, time.Since(began))
		require.Equal(w, rwlock.MaxHold, loss.Reason)
		w.Release(other)
		w.Pass(w.TTL)
		w.OnlyTokensLeft()

		lease = p.Take("n", rwlock.Write, rwlock.WithMaxHold(4*time.Second))
		w.Pass(3 * time.Second)
		require.NoError(w, lease.Downgrade(w.Ctx))
		w.Pass(1100 * time.Millisecond)
		require.ErrorIs(w, lease.Err(), rwlock.ErrLost, "the limit counts from the grant")
		w.Pass(w.TTL)
		w.OnlyTokensLeft()
	})
}

package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// upgrading is a call of Upgrade under way.
func (w *world) upgrading(ctx context.Context, lease *rwlock.Lease) *locking {
	return w.locking(ctx, lease.Upgrade)
}

// A lease goes from reading to writing and back, with a larger token each time, and is the same lease all along.
func TestALeaseIsUpgradedAndDowngraded(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.process()
		lease := p.lock("n", rwlock.Read)
		ctx, done, ended := lease.Context(w.ctx), lease.Done(), watch(lease)
		last := lease.Token()
		for range 3 {
			for _, step := range []struct {
				convert func(context.Context) error
				mode    rwlock.Mode
			}{{lease.Upgrade, rwlock.Write}, {lease.Upgrade, rwlock.Write}, {lease.Downgrade, rwlock.Read}} {
				before := lease.Mode()
				require.NoError(w.t, step.convert(w.ctx))
				require.Equal(w.t, step.mode, lease.Mode())
				if before == step.mode {
					require.Equal(w.t, last, lease.Token(), "it did nothing")
				} else {
					require.Greater(w.t, lease.Token(), last)
				}
				last = lease.Token()
				fence, ok := fencing.FromContext(ctx, "n")
				require.True(w.t, ok)
				require.Equal(w.t, lease.Fence(), fence)
				require.NoError(w.t, lease.Err())
				require.NoError(w.t, lease.Renew(w.ctx))
				require.NoError(w.t, ctx.Err())
				w.eventually("one hold is left", func() bool { return len(w.inspect("n").Holders) == 1 })
				require.Equal(w.t, step.mode, w.inspect("n").Mode)
			}
		}
		require.False(w.t, ended.before(time.Now()))
		require.Equal(w.t, 1, p.Stats().Held)
		w.release(lease)
		w.untilClosed(done)
		w.untilClosed(ctx.Done())
		require.ErrorIs(w.t, context.Cause(ctx), rwlock.ErrReleased)
		require.ErrorIs(w.t, lease.Upgrade(w.ctx), rwlock.ErrReleased)
		require.Zero(w.t, p.Stats().Held)
		w.eventually("only tokens are left", w.hasOnlyTokens)
	})
}

// A reader that upgrades waits for the other readers, before all others who wait, and a second one is told at once.
func TestAnUpgradeWaitsForTheOtherReaders(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		first, second := p.lock("n", rwlock.Read), q.lock("n", rwlock.Read)
		writer := q.queue("n", rwlock.Write)
		upgrade := w.upgrading(w.ctx, first)
		w.untilWaiting("n", 2)
		reader := q.queue("n", rwlock.Read)
		require.ErrorIs(w.t, second.Upgrade(w.ctx), rwlock.ErrUpgrade)
		require.NoError(w.t, second.Err(), "it still reads")
		require.ErrorIs(w.t, first.Upgrade(w.ctx), rwlock.ErrUpgrade, "a call is under way")
		require.NoError(w.t, first.Err())
		require.Equal(w.t, rwlock.Read, first.Mode())

		w.release(second)
		require.NoError(w.t, upgrade.result())
		require.Equal(w.t, rwlock.Write, first.Mode())
		require.True(w.t, writer.isWaiting())
		require.NoError(w.t, first.Downgrade(w.ctx))
		require.True(w.t, reader.isWaiting(), "behind the writer")
		w.release(first)
		w.release(writer.granted())
		w.release(reader.granted())
		w.eventually("only tokens are left", w.hasOnlyTokens)
	})
}

// Whoever upgrades once more after giving up does not meet its own last attempt as a rival, though it may overtake that
// one's release.
func TestAnUpgradeOvertakesTheReleaseOfTheLast(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		lease, other := p.lock("n", rwlock.Read), q.lock("n", rwlock.Read)
		for range 5 {
			require.ErrorIs(w.t, lease.Upgrade(soonOver(w)), context.DeadlineExceeded)
		}
		refused, ok := errors.AsType[*rwlock.AcquireError](lease.TryUpgrade(w.ctx))
		require.True(w.t, ok)
		require.NotNil(w.t, refused.Holder)
		require.Equal(w.t, other.Owner(), refused.Holder.Owner)
		upgrade := w.upgrading(w.ctx, lease)
		w.untilWaiting("n", 1)
		w.release(other)
		require.NoError(w.t, upgrade.result())
		w.release(lease)
		w.pass(w.ttl)
		w.onlyTokensLeft()
	})
}

// A refused upgrade names another reader as the one in its way.
func TestARefusedUpgradeNamesAnother(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.process()
		for i := range 6 {
			var readers []*rwlock.Lease
			for range 3 {
				lease, err := p.RLock(w.ctx, "n")
				require.NoError(w.t, err)
				readers = append(readers, lease)
			}
			upgrading := readers[i%3]
			refused, ok := errors.AsType[*rwlock.AcquireError](upgrading.TryUpgrade(w.ctx))
			require.True(w.t, ok)
			require.NotNil(w.t, refused.Holder)
			require.NotEqual(w.t, upgrading.Owner(), refused.Holder.Owner)
			for _, lease := range readers {
				w.release(lease)
			}
		}
	})
}

// Readers who wait are let in by a downgrade.
func TestADowngradeLetsReadersIn(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		lease := p.lock("n", rwlock.Write)
		readers := []*pending{q.queue("n", rwlock.Read), q.queue("n", rwlock.Read)}
		require.NoError(w.t, lease.Downgrade(w.ctx))
		for _, r := range readers {
			r.granted()
		}
		require.NoError(w.t, lease.Err())
		require.ErrorIs(w.t, lease.Upgrade(soonOver(w)), context.DeadlineExceeded)
		require.NoError(w.t, lease.Err())
		for _, r := range readers {
			w.release(r.lease)
		}
		require.NoError(w.t, lease.Upgrade(w.ctx))
		w.release(lease)
		w.eventually("only tokens are left", w.hasOnlyTokens)
	})
}

func soonOver(w *world) context.Context {
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	w.t.Cleanup(cancel)
	return ctx
}

// Whoever gives up goes on reading, whatever the upgrade had come to.
func TestAnUpgradeThatIsGivenUpKeepsTheReadLock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		limited := p.lock("n", rwlock.Read, rwlock.WithMaxWait(3*time.Second))
		other := q.lock("n", rwlock.Read)
		began := time.Now()
		err := limited.Upgrade(w.ctx)
		require.Equal(w.t, 3*time.Second, time.Since(began))
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		require.ErrorContains(w.t, err, "WithMaxWait limit of 3s")
		token := limited.Token()
		w.release(other)
		w.pass(3 * w.ttl)
		require.NoError(w.t, limited.Err())
		require.Equal(w.t, token, limited.Token())

		p.link.Hold(testredis.ToClient) // granted, and nobody hears of it
		require.ErrorIs(w.t, limited.Upgrade(soonOver(w)), context.DeadlineExceeded)
		p.link.Restore()
		w.pass(2 * w.ttl)
		require.NoError(w.t, limited.Err())
		require.Equal(w.t, rwlock.Read, limited.Mode())
		require.NoError(w.t, limited.Upgrade(w.ctx))
		require.Greater(w.t, limited.Token(), token)
		w.release(limited)
		w.pass(w.ttl)
		w.onlyTokensLeft()
	})
}

// A lease that is lost while it waits for its upgrade is lost.
func TestAnUpgradeEndsWithTheLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		lease := p.lock("n", rwlock.Read, rwlock.WithMaxHold(4*time.Second))
		other := q.lock("n", rwlock.Read)
		began := time.Now()
		loss := w.loss(lease.Upgrade(w.ctx))
		require.Equal(w.t, 4*time.Second, time.Since(began))
		require.Equal(w.t, rwlock.MaxHold, loss.Reason)
		w.release(other)
		w.pass(w.ttl)
		w.onlyTokensLeft()

		lease = p.lock("n", rwlock.Write, rwlock.WithMaxHold(4*time.Second))
		w.pass(3 * time.Second)
		require.NoError(w.t, lease.Downgrade(w.ctx))
		w.pass(1100 * time.Millisecond)
		require.ErrorIs(w.t, lease.Err(), rwlock.ErrLost, "the limit counts from the grant")
		w.pass(w.ttl)
		w.onlyTokensLeft()
	})
}

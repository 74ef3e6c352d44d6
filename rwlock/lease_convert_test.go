package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
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

// A refused upgrade names another reader as the one in its way.
func TestARefusedUpgradeNamesAnother(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.Process()
		for i := range 6 {
			var readers []*rwlock.Lease
			for range 3 {
				lease := p.Take("n", rwlock.Read)
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

// freezeReleases has the server run no release of this process until thaw is called.
func freezeReleases(p *process) (thaw func()) {
	thawed := make(chan struct{})
	p.Link.OnCommand(func(cmd []string) {
		if testkit.Running(scripts.Release)(cmd) {
			<-thawed
		}
	})
	return func() { close(thawed) }
}

// The server stands still after it has granted a conversion. The conversion is done when ctx ends, and what is left of
// the hold before is released once the server goes on.
func TestAConversionEndsWithItsContext(t *testing.T) {
	for _, c := range []struct {
		name string
		from rwlock.Mode
		run  func(*rwlock.Lease, context.Context) error
	}{
		{"Upgrade", rwlock.Read, (*rwlock.Lease).Upgrade},
		{"TryUpgrade", rwlock.Read, (*rwlock.Lease).TryUpgrade},
		{"Downgrade", rwlock.Write, (*rwlock.Lease).Downgrade},
	} {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.Process()
				lease := p.Take("n", c.from)
				token, thaw := lease.Token(), freezeReleases(p)
				began := time.Now()
				require.NoError(w, c.run(lease, soonOver(w)))
				require.Equal(w, 50*time.Millisecond, time.Since(began))
				require.NotEqual(w, c.from, lease.Mode())
				require.Greater(w, lease.Token(), token)
				require.Equal(w, 1, p.Stats().Held)
				require.Len(w, w.Inspect("n").Holders, 2, "the hold before stands yet")

				thaw()
				w.Eventually("it is released", func() bool { return len(w.Inspect("n").Holders) == 1 })
				w.RequireLess(time.Since(began), time.Second, "in the background")
				require.NoError(w, lease.Err())
				w.Release(lease)
				w.OnlyTokensLeft()
			})
		})
	}
}

// A conversion of a hold that the server does not have any more, since its clock was set forward or its data is lost,
// is a loss: another may have been in meanwhile. The hold of another is the cause only where it could stand beside the
// lease.
func TestAConversionOfAHoldThatIsGoneIsALoss(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world, q *process){
		"nobody was in":    func(*world, *process) {},
		"a writer was in":  func(w *world, q *process) { w.Release(q.Take("n", rwlock.Write)) },
		"a writer is in":   func(_ *world, q *process) { q.Take("n", rwlock.Write) },
		"a reader is in":   func(_ *world, q *process) { q.Take("n", rwlock.Read) },
		"its data is lost": func(w *world, _ *process) { w.FlushAll() },
	} {
		for _, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
			t.Run(name+", from "+mode.String(), func(t *testing.T) {
				inFakeTime(t, func(w *world) {
					w.Mini.Skew(0)
					p, q := w.Process(), w.Process()
					lease := p.Take("n", mode)
					w.Mini.Skew(w.TTL + time.Second)
					meanwhile(w, q)
					var err error
					if mode == rwlock.Write {
						err = lease.Downgrade(w.Ctx)
					} else {
						err = lease.TryUpgrade(w.Ctx)
					}
					if mode == rwlock.Read && name == "a reader is in" {
						require.ErrorIs(w, err, rwlock.ErrNotAcquired)
						return
					}
					require.ErrorIs(w, err, rwlock.ErrLost)
					require.ErrorContains(w, err, "gone")
					require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
				})
			})
		}
	}
}

// A machine is suspended in the middle of an upgrade, for longer than its read lock lasts. What it is granted after
// that is another lock: a writer was in between.
func TestAnUpgradeDuringASuspension(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const late = 300 * time.Millisecond
		w.Mini.Skew(0)
		clock := testkit.NewWallClock(0)
		p := w.Process(clock.Option())
		lease := p.Take("n", rwlock.Read)
		struck := p.Link.DelayNextReply(testkit.Running("acquire"), late)
		upgrade := w.Call(w.Ctx, lease.TryUpgrade)
		<-struck
		w.Mini.Skew(2 * w.TTL)
		clock.Step(2 * w.TTL)
		other := w.Process(testkit.NewWallClock(2 * w.TTL).Option())
		w.Release(other.Take("n", rwlock.Write))
		require.ErrorIs(w, upgrade.Result(), rwlock.ErrLost)
		require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
	})
}

// A conversion waits for the release of its old hold. If the lease is lost in the meantime, the conversion returns the
// loss.
func TestAConversionThatIsLostBeforeItReturns(t *testing.T) {
	for _, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
		t.Run(mode.String(), func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.Process(rwlock.WithTTL(time.Second), rwlock.WithReleaseTimeout(5*time.Second))
				lease := p.Take("n", mode)
				convert := lease.Upgrade
				if mode == rwlock.Write {
					convert = lease.Downgrade
				}
				p.Link.OnCommand(func(cmd []string) {
					if w.ScriptOf(cmd) == scripts.Release {
						p.Link.Blackhole(testredis.Both)
					}
				})
				require.ErrorIs(w, convert(w.Ctx), rwlock.ErrLost)
				require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
				require.ErrorIs(w, lease.Release(w.Ctx), rwlock.ErrLost)
			})
		})
	}
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

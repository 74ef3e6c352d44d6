package rwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A lease goes from reading to writing and back, with a larger token each time, and is the same lease all along.
func TestALeaseIsUpgradedAndDowngraded(t *testing.T) {
	everywhere(t, withOne(func(w *world, p *process) {
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
				require.Equal(w, lease.Fence(), fenceOf(w, ctx, "n"))
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
	}))
}

// Whoever gives up goes on reading, whatever the upgrade had come to.
func TestAnUpgradeThatIsGivenUpKeepsTheReadLock(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		limited := p.Take("n", rwlock.Read, rwlock.WithMaxWait(3*time.Second))
		other := q.Take("n", rwlock.Read)
		began := time.Now()
		err := limited.Upgrade(w.Ctx)
		require.Equal(w, 3*time.Second, time.Since(began))
		expect.Fails(w, err, rwlock.ErrNotAcquired, "WithMaxWait limit of 3s")
		token := limited.Token()
		w.Release(other)
		w.Pass(3 * w.TTL)
		require.NoError(w, limited.Err())
		require.Equal(w, token, limited.Token())

		p.Link.Hold(testredis.ToClient) // granted, and nobody hears of it
		require.ErrorIs(w, limited.Upgrade(w.Soon(50*time.Millisecond)), context.DeadlineExceeded)
		p.Link.Restore()
		w.Pass(2 * w.TTL)
		require.NoError(w, limited.Err())
		require.Equal(w, rwlock.Read, limited.Mode())
		require.NoError(w, limited.Upgrade(w.Ctx))
		require.Greater(w, limited.Token(), token)
		w.Release(limited)
		w.Pass(w.TTL)
		w.OnlyTokensLeft()
	}))
}

// A lease that is lost while it waits for its upgrade is lost.
func TestAnUpgradeEndsWithTheLease(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		lease := p.Take("n", rwlock.Read, rwlock.WithMaxHold(4*time.Second))
		other := q.Take("n", rwlock.Read)
		began := time.Now()
		loss := w.Loss(lease.Upgrade(w.Ctx))
		require.Equal(w, 4*time.Second, time.Since(began))
		require.Equal(w, rwlock.ReasonMaxHold, loss.Reason)
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
	}))
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
			subtestInFakeTime(t, name+", from "+mode.String(), func(w *world) {
				w.Mini.Skew(0)
				p, q := w.Process(), w.Process()
				lease := p.Take("n", mode)
				w.Mini.Skew(w.TTL + time.Second)
				meanwhile(w, q)
				convert := lease.TryUpgrade
				if mode == rwlock.Write {
					convert = lease.Downgrade
				}
				err := convert(w.Ctx)
				if mode == rwlock.Read && name == "a reader is in" {
					require.ErrorIs(w, err, rwlock.ErrNotAcquired)
					return
				}
				expect.Fails(w, err, rwlock.ErrLost, "gone")
				require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
			})
		}
	}
}

// heldBatches is a client whose batches, which renewals go in, leave only when they may.
type heldBatches struct {
	rueidis.Client
	may chan struct{}
}

func (c *heldBatches) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if testkit.Running(scripts.Renew)(cmd.Commands()) { // a batch of one
		<-c.may
	}
	return c.Client.Do(ctx, cmd)
}

func (c *heldBatches) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	<-c.may
	return c.Client.DoMulti(ctx, commands...)
}

// holdingBatches starts a locker whose renewals wait until they are let go.
func holdingBatches(w *world) (p *process, letGo func()) {
	w.Helper()
	link := w.NewLink()
	client := &heldBatches{link.Client(w.T), make(chan struct{})}
	letGo = sync.OnceFunc(func() { close(client.may) })
	p = w.ProcessWith(link, client)
	w.Cleanup(letGo) // before the locker is closed
	return p, letGo
}

// A renewal that is under way while its lease is converted renews what the lease has become. Its own answer is of no
// use to anybody then, and the lease does not end, so it must not wait for either.
func TestARenewalBesideAConversion(t *testing.T) {
	for mode, convert := range map[rwlock.Mode]func(*rwlock.Lease, context.Context) error{
		rwlock.Read: (*rwlock.Lease).Upgrade, rwlock.Write: (*rwlock.Lease).Downgrade,
	} {
		inFakeTime(t, func(w *world) {
			p, letGo := holdingBatches(w)
			lease := p.Take("n", mode, rwlock.WithoutRenewal())
			renewal := w.Call(w.Ctx, lease.Renew)
			require.NoError(w, convert(lease, w.Ctx))
			w.Pass(900 * time.Millisecond) // less than the node timeout
			require.True(w, renewal.IsWaiting())
			letGo()
			require.NoError(w, renewal.Result())
			require.Greater(w, time.Until(lease.Deadline()), w.TTL*19/20, "the TTL from now on")
			w.Release(lease)
			w.OnlyTokensLeft()
		})
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
		w.Release(w.Process(testkit.NewWallClock(2*w.TTL).Option()).Take("n", rwlock.Write))
		require.ErrorIs(w, upgrade.Result(), rwlock.ErrLost)
		require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
	})
}

// A conversion that waits for the release of its old hold returns a loss of the lease in the meantime.
func TestAConversionThatIsLostBeforeItReturns(t *testing.T) {
	for _, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
		subtestInFakeTime(t, mode.String(), func(w *world) {
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
	}
}

// Goroutines that share a write lease may all upgrade it at once: it does nothing, so nobody is in the way of another.
func TestUpgradesThatDoNothingAreNotRefused(t *testing.T) {
	inFakeTime(t, func(w *world) {
		lease := w.Process().Take("n", rwlock.Write)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 500 {
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

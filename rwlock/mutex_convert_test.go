package rwlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// An RWMutex goes from reading to writing and back with a larger token each time, and its contexts go with it.
func TestAnRWMutexIsUpgradedAndDowngraded(t *testing.T) {
	everywhere(t, withTwo(func(w *world, p, q *process) {
		mu, elsewhere := p.RWMutex("n"), q.RWMutex("n")
		require.NoError(w, mu.RLock(w.Ctx))
		ctx, last := mu.Context(w.Ctx), mu.Token()
		for range 3 {
			for _, step := range []struct {
				convert func(context.Context) error
				mode    rwlock.Mode
				let     error // what another process's reader is told
			}{{mu.Upgrade, rwlock.Write, rwlock.ErrNotAcquired}, {mu.Downgrade, rwlock.Read, nil}} {
				require.NoError(w, step.convert(w.Ctx))
				require.Greater(w, mu.Token(), last)
				last = mu.Token()
				require.Equal(w, fencing.Fence{Resource: "n", Token: last, Mode: step.mode}, fenceOf(w, ctx, "n"))
				require.NoError(w, ctx.Err())
				w.Eventually("one hold is left", func() bool { return len(w.Inspect("n").Holders) == 1 })
				require.Equal(w, step.mode, w.Inspect("n").Mode)
				require.ErrorIs(w, elsewhere.TryLock(w.Ctx), rwlock.ErrNotAcquired)
				err := elsewhere.TryRLock(w.Ctx)
				require.ErrorIs(w, err, step.let)
				if err == nil {
					require.NoError(w, elsewhere.RUnlock(w.Ctx))
				}
			}
		}
		succeed(w, mu.TryUpgrade, mu.Unlock)
		w.UntilClosed(ctx.Done())
		require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
		require.Zero(w, p.Stats().Held)
		w.Eventually("only tokens are left", w.HasOnlyTokens)
	}))
}

// Who converts what is not there is told so, and what is there stays as it is.
func TestConversionsOfWhatIsNotHeld(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, p *process, mu *rwlock.RWMutex) {
		hasWaited(p)
		over := ended(w.Ctx)
		for _, c := range []struct {
			name         string
			lock, unlock func(context.Context) error
			convert      func(context.Context) error
			ctx          context.Context
			want         error
		}{
			{"upgrade of nothing", nil, nil, mu.Upgrade, w.Ctx, rwlock.ErrNotHeld},
			{"single upgrade of nothing", nil, nil, mu.TryUpgrade, w.Ctx, rwlock.ErrNotHeld},
			{"downgrade of nothing", nil, nil, mu.Downgrade, w.Ctx, rwlock.ErrNotHeld},
			{"upgrade of a write lock", mu.Lock, mu.Unlock, mu.Upgrade, w.Ctx, rwlock.ErrNotHeld},
			{"single upgrade of a write lock", mu.Lock, mu.Unlock, mu.TryUpgrade, w.Ctx, rwlock.ErrNotHeld},
			{"downgrade of a read lock", mu.RLock, mu.RUnlock, mu.Downgrade, w.Ctx, rwlock.ErrNotHeld},
			{"upgrade after the end of ctx", mu.RLock, mu.RUnlock, mu.Upgrade, over, context.Canceled},
			{"downgrade after the end of ctx", mu.Lock, mu.Unlock, mu.Downgrade, over, context.Canceled},
			{"refused name", nil, nil, p.RWMutex("").Upgrade, w.Ctx, rwlock.ErrOption},
		} {
			if c.lock != nil {
				require.NoError(w, c.lock(w.Ctx), c.name)
			}
			token := mu.Token()
			p.Link.ResetCalls()
			require.ErrorIs(w, c.convert(c.ctx), c.want, c.name)
			require.Empty(w, sent(p.Link), c.name)
			require.Equal(w, token, mu.Token(), c.name)
			if c.unlock != nil {
				require.NoError(w, c.unlock(w.Ctx), c.name)
			}
		}
		w.Eventually("only tokens are left", w.HasOnlyTokens)
	}))
}

// A reader that upgrades waits for the other readers of the process and of others. From the beginning nobody gets in,
// and whoever else wants to upgrade is told at once, here and elsewhere.
func TestAnUpgradeWaitsForReadersHereAndElsewhere(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		mu, elsewhere := p.RWMutex("n"), q.RWMutex("n")
		succeed(w, mu.RLock, mu.RLock, elsewhere.RLock)
		token := mu.Token()
		require.ErrorIs(w, mu.TryUpgrade(w.Ctx), rwlock.ErrNotAcquired)
		upgrade := w.Call(w.Ctx, mu.Upgrade)
		w.UntilWaiting("n", 1)
		allFail(w, rwlock.ErrUpgrade, mu.Upgrade, mu.TryUpgrade, elsewhere.Upgrade)
		allFail(w, rwlock.ErrNotAcquired, mu.TryRLock, w.Process().RWMutex("n").TryRLock)
		require.Equal(w, token, mu.Token())

		require.NoError(w, elsewhere.RUnlock(w.Ctx))
		w.Eventually("it is granted there", func() bool { return len(w.Inspect("n").Waiters) == 0 })
		require.True(w, upgrade.IsWaiting(), "for the one beside it")
		require.Equal(w, token, mu.Token())
		require.NoError(w, mu.RUnlock(w.Ctx))
		require.NoError(w, upgrade.Result())
		require.Greater(w, mu.Token(), token)
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
		require.NoError(w, mu.Unlock(w.Ctx))
		w.Eventually("only tokens are left", w.HasOnlyTokens)
	}))
}

// A downgrade lets in who waits to read, of the process without a command, and of others; not past a writer.
func TestADowngradeOfAnRWMutexLetsReadersIn(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		hasWaited(p)
		mu := p.RWMutex("n")
		require.NoError(w, mu.Lock(w.Ctx))
		readers := []*testkit.Call{w.Call(w.Ctx, mu.RLock), w.Call(w.Ctx, mu.RLock)}
		writer := w.Call(w.Ctx, mu.Lock)
		elsewhere := q.Queue("n", rwlock.Read)
		p.Link.ResetCalls()
		require.NoError(w, mu.Downgrade(w.Ctx))
		for _, r := range readers {
			require.NoError(w, r.Result())
		}
		w.Release(elsewhere.Granted())
		calls := sent(p.Link)
		require.Equal(w, 2, calls["EVAL"]+calls["EVALSHA"], "for the conversion")
		require.True(w, writer.IsWaiting())
		require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired, "behind the writer")
		for range 3 {
			require.True(w, writer.IsWaiting())
			require.NoError(w, mu.RUnlock(w.Ctx))
		}
		require.NoError(w, writer.Result())
		require.NoError(w, mu.Unlock(w.Ctx))
		w.Eventually("only tokens are left", w.HasOnlyTokens)
	}))
}

// Readers elsewhere who waited for a downgrade are in beside it, and nobody waits: readers of the process go on
// joining. As soon as a writer waits elsewhere they do not, also where that one came before.
func TestReadersJoinAfterADowngradeUntilAWriterWaits(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for _, before := range []bool{false, true} {
			p, q := w.Process(), w.Process()
			hasWaited(p)
			mu := p.RWMutex("n")
			require.NoError(w, mu.Lock(w.Ctx))
			elsewhere := q.Queue("n", rwlock.Read)
			var writer *pending
			if before {
				writer = q.Queue("n", rwlock.Write)
			}
			require.NoError(w, mu.Downgrade(w.Ctx))
			lease := elsewhere.Granted()
			if !before {
				succeed(w, mu.TryRLock, mu.RUnlock)
				writer = q.Queue("n", rwlock.Write)
			}
			hears(w, mu)
			w.Release(lease)
			require.NoError(w, mu.RUnlock(w.Ctx))
			w.Release(writer.Granted())
			w.Eventually("only tokens are left", w.HasOnlyTokens)
		}
	})
}

// hears returns when the readers of a process have heard that a writer waits elsewhere: by a message, before a renewal.
func hears(w *world, mu *rwlock.RWMutex) {
	w.Helper()
	began := time.Now()
	w.Eventually("it is heard", func() bool {
		if mu.TryRLock(w.Ctx) != nil {
			return true
		}
		require.NoError(w, mu.RUnlock(w.Ctx))
		return false
	})
	w.RequireLess(time.Since(began), time.Second, "by a message")
}

// Readers who follow a writer of the process under its lease upgrade without a command, with a token of the block. The
// last of the block is not for readers, who would have none to upgrade with.
func TestAnUpgradeUnderAWriteLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(rwlock.WithLinger(time.Minute))
		hasWaited(p)
		mu := p.RWMutex("n")
		for left, commands := range map[fencing.Token]bool{2: false, 1: true} {
			require.NoError(w, mu.Lock(w.Ctx))
			last := w.Inspect("n").Token
			for mu.Token()+left < last {
				succeed(w, mu.Unlock, mu.Lock)
			}
			require.NoError(w, mu.Unlock(w.Ctx))
			p.Link.ResetCalls()
			succeed(w, mu.RLock, mu.RLock)
			token, upgrade := mu.Token(), w.Call(w.Ctx, mu.Upgrade)
			require.True(w, upgrade.IsWaiting())
			require.ErrorIs(w, mu.Upgrade(w.Ctx), rwlock.ErrUpgrade)
			require.NoError(w, mu.RUnlock(w.Ctx))
			require.NoError(w, upgrade.Result())
			require.Equal(w, commands, len(sent(p.Link)) > 0)
			require.Greater(w, mu.Token(), token)
			require.LessOrEqual(w, mu.Token(), w.Inspect("n").Token)
			token = mu.Token()
			require.NoError(w, mu.Downgrade(w.Ctx))
			require.Greater(w, mu.Token(), token)
			require.NoError(w, mu.RUnlock(w.Ctx))
		}
	})
}

type upgradeLoss struct {
	lose    func(w *world, p *process, hold string)
	want    error
	because string
}

// upgradeLosses are the ways in which the write hold of an upgrade is lost before it is taken, and what is told then.
var upgradeLosses = map[string]upgradeLoss{
	"taken away": {func(w *world, _ *process, hold string) {
		w.Command("EVAL", scripts.Source(scripts.Release), "4",
			"fencelock:{n}", "fencelock:{n}:h", "fencelock:{n}:q", "fencelock:{n}:x", hold, "0", "0", "0")
	}, rwlock.ErrNotAcquired, "lost before the conversion ended: gone"},
	"not renewed": {func(_ *world, p *process, hold string) {
		for range 100 { // more often than it is tried
			p.Link.DropNextCommand(func(cmd []string) bool {
				return testkit.Running(scripts.Renew)(cmd) && slices.Equal(testkit.HoldsOf(cmd), []string{hold})
			})
		}
	}, rwlock.ErrNoQuorum, "lost before the conversion ended: not renewed"},
}

// The write hold of an upgrade may be lost while other readers are yet to leave: it is no loss, and it goes on reading.
func TestAnUpgradeWhoseNewHoldIsLost(t *testing.T) {
	eachInFakeTime(t, upgradeLosses, func(w *world, c upgradeLoss) {
		p := w.Process()
		p.WarmUp()
		mu := p.RWMutex("n")
		succeed(w, mu.RLock, mu.RLock)
		token, ctx := mu.Token(), mu.Context(w.Ctx)
		w.Pass(time.Second) // the two holds are renewed apart
		upgrade := w.Call(w.Ctx, mu.Upgrade)
		for _, h := range w.Inspect("n").Holders {
			if h.Mode == rwlock.Write {
				c.lose(w, p, h.Hold)
			}
		}
		err := upgrade.Result()
		expect.Fails(w, err, c.want, c.because)
		require.NotErrorIs(w, err, context.Canceled)
		require.NotErrorIs(w, err, rwlock.ErrLost)
		require.Equal(w, token, mu.Token())
		require.NoError(w, ctx.Err())
		w.Pass(time.Second) // the server has just failed
		succeed(w, mu.RUnlock, mu.RUnlock)
		w.OnlyTokensLeft()
	})
}

// lateRenewals is a client to which, once it is late, the answers to renewals come only when they may.
type lateRenewals struct {
	rueidis.Client
	late atomic.Bool
	may  chan struct{}
}

func (c *lateRenewals) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	renews := testkit.Running(scripts.Renew)(cmd.Commands())
	result := c.Client.Do(ctx, cmd)
	if renews && c.late.Load() {
		<-c.may
	}
	return result
}

func (c *lateRenewals) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	renews := slices.ContainsFunc(commands, func(cmd rueidis.Completed) bool {
		return testkit.Running(scripts.Renew)(cmd.Commands())
	})
	results := c.Client.DoMulti(ctx, commands...)
	if renews && c.late.Load() {
		<-c.may
	}
	return results
}

// A writer elsewhere comes after the server has answered a renewal, and before the upgrade is given up that was granted
// meanwhile. The answer, which is yet on its way then, says that nobody waits; the lease asks once more.
func TestWhoWaitsBehindAnUpgradeIsAskedForAfterTheRenewalUnderWay(t *testing.T) {
	inFakeTime(t, func(w *world) {
		link := w.NewLink()
		client := &lateRenewals{Client: link.Client(t), may: make(chan struct{})}
		p, q := w.ProcessWith(link, client), w.Process()
		letGo := sync.OnceFunc(func() { close(client.may) })
		w.Cleanup(letGo) // before the locker is closed
		hasWaited(p)
		mu := p.RWMutex("n")
		succeed(w, mu.RLock, mu.RLock)
		other := q.Take("n", rwlock.Read)
		ctx, cancel := context.WithCancel(w.Ctx)
		upgrade := w.Call(ctx, mu.Upgrade)
		w.Release(other)
		w.Settle()
		require.Len(w, w.Inspect("n").Holders, 2, "granted, and waiting for the other reader of the process")

		w.Pass(w.TTL / 5) // the write hold, which was handed over, is confirmed
		client.late.Store(true)
		w.Pass(w.TTL/3 - w.TTL/5)
		writer := q.Queue("n", rwlock.Write)
		p.Link.DropPushes(func([]string) bool { return true }) // as if it had come before the news were forgotten
		cancel()
		require.ErrorIs(w, upgrade.Result(), context.Canceled)
		w.Settle()
		letGo()
		hears(w, mu)
		p.Link.DropPushes(nil)
		succeed(w, mu.RUnlock, mu.RUnlock)
		w.Release(writer.Granted())
		w.OnlyTokensLeft()
	})
}

// The lease asks who waits only once the upgrade itself has left the queue: readers of the process join at once.
func TestAnUpgradeThatIsGivenUpDoesNotWaitForItself(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
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
		succeed(w, mu.TryRLock, mu.RUnlock)

		w.Pass(w.TTL)
		require.NoError(w, mu.TryRLock(w.Ctx))
		w.Release(other)
	}))
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
				relock(w, mu)
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
		succeed(w, mu.RLock, mu.RLock)
		clock.Step(2 * w.TTL)
		allFail(w, rwlock.ErrLost, mu.TryUpgrade, mu.RUnlock, mu.RUnlock)
	})
}

// A writer elsewhere who has come behind an upgrade that is given up is heard of, or the lease asks where its message
// came while the upgrade was being given up.
func TestWhoWaitsBehindAnUpgradeThatIsGivenUp(t *testing.T) {
	eachInFakeTime(t, map[string]bool{"is heard of": false, "is asked for": true}, func(w *world, lost bool) {
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
}

// While a reader upgrades, whoever has no lock is told so.
func TestAConversionWithoutALockBesideAnUpgrade(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		mu := p.RWMutex("n")
		other := q.Take("n", rwlock.Read)
		require.NoError(w, mu.RLock(w.Ctx))
		upgrade := w.Call(w.Ctx, mu.Upgrade)
		require.ErrorIs(w, mu.Downgrade(w.Ctx), rwlock.ErrNotHeld)
		require.ErrorIs(w, mu.Upgrade(w.Ctx), rwlock.ErrNotHeld, "the only reader upgrades already")
		w.Release(other)
		require.NoError(w, upgrade.Result())
		require.NoError(w, mu.Unlock(w.Ctx))
	}))
}

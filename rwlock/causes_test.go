package rwlock_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// causesOfNoLease end an acquisition.
var causesOfNoLease = map[string]cause{
	"held by another, one attempt": {
		is(rwlock.ErrNotAcquired),
		says("rwlock: ", `write lock "n"`, "held by", "for write", "the holder's meta", "expires in 10s"),
		func(w *world, p *process) error { holdElsewhere(w); return expect.ErrorOf(p.TryLock(w.Ctx, "n")) },
	},
	"held by another, one attempt to read": {
		is(rwlock.ErrNotAcquired), says(`read lock "n"`, "for write", "the holder's meta"),
		func(w *world, p *process) error { holdElsewhere(w); return expect.ErrorOf(p.TryRLock(w.Ctx, "n")) },
	},
	"held by another until ctx timed out": {
		is(rwlock.ErrNotAcquired, context.DeadlineExceeded),
		says(`write lock "n"`, "after 1.5s", "the holder's meta", "context deadline exceeded"),
		func(w *world, p *process) error {
			holdElsewhere(w)
			return expect.ErrorOf(p.Lock(w.Soon(1500*time.Millisecond), "n"))
		},
	},
	"held by another until ctx was cancelled with a cause": {
		is(rwlock.ErrNotAcquired, context.Canceled, errShutdown), says(`read lock "n"`, "after 1s", "shutting down"),
		func(w *world, p *process) error {
			holdElsewhere(w)
			ctx, cancel := context.WithCancelCause(w.Ctx)
			time.AfterFunc(time.Second, func() { cancel(errShutdown) })
			return expect.ErrorOf(p.RLock(ctx, "n"))
		},
	},
	"held by another until the limit": {
		is(rwlock.ErrNotAcquired), says(`write lock "n"`, "after 2s", "the holder's meta", "WithMaxWait limit of 2s"),
		func(w *world, p *process) error {
			holdElsewhere(w)
			return expect.ErrorOf(p.Lock(w.Ctx, "n", rwlock.WithMaxWait(2*time.Second)))
		},
	},
	"ctx had ended before": {
		is(rwlock.ErrNotAcquired, context.Canceled, errShutdown), says(`write lock "n"`, "shutting down"),
		func(w *world, p *process) error {
			ctx, cancel := context.WithCancelCause(w.Ctx)
			cancel(errShutdown)
			return expect.ErrorOf(p.Lock(ctx, "n"))
		},
	},
	"a single attempt of an RWMutex": {
		is(rwlock.ErrNotAcquired), says(`read lock "n"`, "the holder's meta"),
		func(w *world, p *process) error { holdElsewhere(w); return p.RWMutex("n").TryRLock(w.Ctx) },
	},
	"a conversion beside a reader": {
		is(rwlock.ErrNotAcquired), says(`write lock "n"`, "for read"), func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Read)
			w.Process().Take("n", rwlock.Read)
			return lease.TryUpgrade(w.Ctx)
		},
	},
	"nobody to ask, one attempt": {
		is(rwlock.ErrNoQuorum), says(`lock "n"`, "no usable answer from Redis; mini:6379: ", "connection refused"),
		func(w *world, p *process) error { p.Die(); w.Settle(); return expect.ErrorOf(p.TryLock(w.Ctx, "n")) },
	},
	"nobody to ask until ctx timed out": {
		is(rwlock.ErrNoQuorum, context.DeadlineExceeded), says(`lock "n"`, "mini:6379: ", "connection refused"),
		func(w *world, p *process) error { p.Die(); return expect.ErrorOf(p.Lock(w.Soon(5*time.Second), "n")) },
	},
	"nobody to ask for an RWMutex until ctx timed out": {
		is(rwlock.ErrNoQuorum, context.DeadlineExceeded), says(`lock "n"`, "mini:6379: ", "connection refused"),
		func(w *world, p *process) error { p.Die(); return p.RWMutex("n").Lock(w.Soon(5 * time.Second)) },
	},
	"nobody answers": {
		is(rwlock.ErrNoQuorum, context.DeadlineExceeded), says(`lock "n"`, "mini:6379: ", "no reply in 250ms"),
		func(w *world, p *process) error {
			p.Link.Hold(testredis.Both)
			return expect.ErrorOf(p.TryLock(w.Soon(250*time.Millisecond), "n"))
		},
	},
	"the server refuses": {
		is(rwlock.ErrNoQuorum), says(`lock "n"`, "mini:6379: ", "MISCONF cannot persist"), func(w *world, p *process) error {
			w.Mini.Miniredis().SetError("MISCONF cannot persist")
			defer w.Mini.Miniredis().SetError("")
			return expect.ErrorOf(p.TryLock(w.Ctx, "n"))
		},
	},
	"a key of somebody else": {
		is(rwlock.ErrConflict), says(`lock "n": key holds something else; `, "mini:6379: ", "WRONGTYPE"),
		func(w *world, p *process) error {
			w.Command("SET", "fencelock:{n}", "mine")
			return expect.ErrorOf(p.Lock(w.Ctx, "n"))
		},
	},
	"an option": {
		is(rwlock.ErrOption), says("WithTTL", "1ms", "100ms"),
		func(w *world, p *process) error {
			return expect.ErrorOf(p.Lock(w.Ctx, "n", rwlock.WithTTL(time.Millisecond)))
		},
	},
	"a locker that is closed": {
		is(rwlock.ErrClosed), says("locker closed", `lock "n"`),
		func(w *world, p *process) error { _ = p.Close(); return expect.ErrorOf(p.Lock(w.Ctx, "n")) },
	},
	"a locker that is closed under a waiter": {
		is(rwlock.ErrClosed), says("locker closed", `lock "n"`), func(w *world, p *process) error {
			holdElsewhere(w)
			a := p.Queue("n", rwlock.Write)
			_ = p.Close()
			return a.Failed()
		},
	},
}

// causesOfTheEnd end a lease or what is done with one.
var causesOfTheEnd = map[string]cause{
	"a lease that was not to be renewed": {
		is(rwlock.ErrLost), says(`lease of "n"`, "token ", "lost: expired (its TTL is 10s)"),
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
			w.UntilOver(lease)
			return lease.Err()
		},
	},
	"a lease that was cut off": {
		is(rwlock.ErrLost), says(`lease of "n"`, "lost: not renewed (its TTL is 10s): ", "mini:6379: "),
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			p.Link.Blackhole(testredis.Both)
			w.UntilOver(lease)
			return lease.Err()
		},
	},
	"a hand-off that was not confirmed": {
		is(rwlock.ErrLost),
		says(`lease of "n"`, "lost: not renewed (a hand-off lasts 3s until a renewal confirms it): ", "mini:6379: "),
		func(w *world, p *process) error {
			held := w.Process().Take("n", rwlock.Write)
			lease := p.Queue("n", rwlock.Write).GrantedAfter(held)
			p.Link.Blackhole(testredis.Both)
			w.UntilOver(lease)
			return lease.Err()
		},
	},
	"a lease that the server forgot": {
		is(rwlock.ErrLost), says(`lease of "n"`, "lost: gone"), func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			w.FlushAll()
			return lease.Release(w.Ctx)
		},
	},
	"a lease at its limit": {
		is(rwlock.ErrLost), says(`lease of "n"`, "lost: max hold of 25s was reached"), func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write, rwlock.WithMaxHold(25*time.Second))
			w.UntilOver(lease)
			return context.Cause(lease.Context(w.Ctx))
		},
	},
	"a lease that was released": {
		is(rwlock.ErrReleased), says(`lease released: lock "n"`), func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			w.Release(lease, lease) // twice is no error
			return lease.Err()
		},
	},
	"a released lease renewed": {
		is(rwlock.ErrReleased), says(`lease released: lock "n"`), func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			w.Release(lease)
			return lease.Renew(w.Ctx)
		},
	},
	"a renewal that was not waited for": {
		is(context.DeadlineExceeded), says(`lock "n"`, "renewal", "context deadline exceeded"),
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			p.Link.Hold(testredis.Both)
			err := lease.Renew(w.Soon(time.Second / 2))
			require.NoError(w, lease.Err(), "the lease stands")
			return err
		},
	},
	"a renewal that was not answered": {
		is(rwlock.ErrNoQuorum), says(`lock "n"`, "mini:6379: ", "no reply in 1s"), func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			p.Link.Hold(testredis.Both)
			return lease.Renew(w.Ctx)
		},
	},
	"a release that meets a key of somebody else": {
		is(rwlock.ErrConflict), says(`lock "n": key holds something else; `, "mini:6379: ", "WRONGTYPE"),
		func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			w.Command("DEL", "fencelock:{n}")
			w.Command("SET", "fencelock:{n}", "mine")
			return lease.Release(w.Ctx)
		},
	},
	"a release that was not answered": {
		is(rwlock.ErrNoQuorum), says(`lock "n"`, "mini:6379: ", "no reply in 2s"), func(w *world, p *process) error {
			lease := p.Take("n", rwlock.Write)
			p.Link.Hold(testredis.Both)
			return lease.Release(w.Ctx)
		},
	},
	"unlocked without a lock": {
		is(rwlock.ErrNotHeld), says("not held", `"n"`, "for write"),
		func(w *world, p *process) error { return p.RWMutex("n").Unlock(w.Ctx) },
	},
	"unlocked for reading without a lock": {
		is(rwlock.ErrNotHeld), says("not held", `"n"`, "for read"), func(w *world, p *process) error {
			m := p.RWMutex("n")
			require.NoError(w, m.Lock(w.Ctx))
			return m.RUnlock(w.Ctx)
		},
	},
	"work that failed under the lock": {is(errShutdown), nil, func(w *world, p *process) error {
		return p.Do(w.Ctx, "n", func(context.Context) error { return errShutdown })
	}},
	"work that failed for the loss of its lease": {
		is(rwlock.ErrLost), says(`lease of "n"`, "lost: gone"), func(w *world, p *process) error {
			return p.Do(w.Ctx, "n", func(ctx context.Context) error {
				w.FlushAll()
				<-ctx.Done()
				return context.Cause(ctx)
			})
		},
	},
}

// Each section tells of the loss of its own lock, once, whatever the work has told of others.
func TestDoTellsOfEachLossOnce(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		var own error // of the inner lock, as the work noticed it
		for _, noticed := range []bool{false, true} {
			err := p.Do(w.Ctx, "a", func(ctx context.Context) error {
				return p.Do(ctx, "b", func(ctx context.Context) error {
					w.FlushAll()
					<-ctx.Done()
					if own = context.Cause(ctx); noticed {
						return own
					}
					return nil
				})
			})
			several, ok := err.(interface{ Unwrap() []error })
			require.True(w, ok, "%v", err)
			var names []string
			for _, each := range several.Unwrap() {
				names = append(names, testkit.As[*rwlock.LostError](w, each, "%v", each).Name)
			}
			require.ElementsMatch(w, []string{"a", "b"}, names, "noticed: %v", noticed)
		}
	}))
}

// A release that is refused for good is told as that, and nothing goes on. Another one goes on in the background.
func TestAReleaseThatIsRefusedForGoodIsNotPending(t *testing.T) {
	for refusal, forGood := range map[string]bool{
		"NOPERM this user has no permissions to run the 'evalsha' command": true,
		"READONLY You can't write against a read only replica.":            true,
		"LOADING Redis is loading the dataset in memory":                   false,
	} {
		subtestInFakeTime(t, refusal, func(w *world) {
			var j testkit.Log
			p := w.Process(j.Option())
			lease := p.Take("n", rwlock.Write)
			w.Mini.Miniredis().SetError(refusal)
			err := lease.Release(w.Ctx)
			w.Mini.Miniredis().SetError("")
			require.ErrorContains(w, err, refusal)
			require.NoError(w, p.Close()) // the log is complete
			requireTold(w.T, err, j.String(), forGood)
		})
	}
}

// requireTold compares what is told of a release that is not confirmed with whether it goes on.
func requireTold(t *testing.T, err error, log string, forGood bool) {
	t.Helper()
	expect.Fails(t, err, rwlock.ErrNoQuorum, `lock "n"`)
	require.Equal(t, !forGood, rwlock.Indeterminate(err))
	for _, text := range []string{err.Error(), log} {
		if forGood {
			require.Contains(t, text, "refused")
			require.Contains(t, text, "ends with its TTL")
			require.NotContains(t, text, "in the background")
		} else {
			require.Contains(t, text, "in the background")
			require.NotContains(t, text, "ends with its TTL")
		}
	}
}

// refusing makes a server refuse scripts while the switch is on, and counts what it refuses.
func refusing(mini *testredis.Mini, on *atomic.Bool) (refused *atomic.Int64) {
	refused = new(atomic.Int64)
	mini.Miniredis().Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if !strings.HasPrefix(cmd, "EVAL") || !on.Load() {
			return false
		}
		refused.Add(1)
		c.WriteError("LOADING Redis is loading the dataset in memory")
		return true
	})
	return refused
}

// Whoever waits for a server that refuses gets in soon after that; of a crowd a single one asks.
func TestWaitersOfAServerThatRefuses(t *testing.T) {
	for name, queued := range map[string]bool{"who asks": false, "who is queued": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const crowd, outage, soon = 100, 10500 * time.Millisecond, 50 * time.Millisecond
				mini := testredis.NewMini(t)
				var on atomic.Bool
				refused := refusing(mini, &on)
				locker := testkit.New(t, mini.Client(t), rwlock.WithTTL(time.Minute))
				holder := expect.NoError(rwlock.New(mini.Client(t), rwlock.WithTTL(time.Second))).In(t)
				held := expect.NoError(holder.Lock(t.Context(), "n", rwlock.WithoutRenewal())).In(t)

				on.Store(!queued)
				var all sync.WaitGroup
				var first atomic.Int64
				began := time.Now()
				for range crowd {
					all.Go(func() {
						lease, err := locker.Lock(t.Context(), "n")
						if !assert.NoError(t, err) {
							return
						}
						first.CompareAndSwap(0, int64(time.Since(began)))
						assert.NoError(t, lease.Release(t.Context()))
					})
				}
				synctest.Wait()
				on.Store(true)
				<-held.Done()
				require.NoError(t, holder.Close())
				time.Sleep(outage - time.Since(began))
				require.Less(t, refused.Load(), int64(3000), "of the crowd")
				on.Store(false)
				all.Wait()
				require.Less(t, time.Duration(first.Load())-outage, soon)
			})
		})
	}
}

// Releases that wait for a master expire while it is away. Those that come after its return are sent as ever.
func TestBackgroundReleasesGoOnAfterAnOutage(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.TTL = time.Second
		p, q := w.Process(), w.Process()
		lease := p.Take("n", rwlock.Write)
		p.CutOff(0)
		require.True(w, rwlock.Indeterminate(lease.Release(w.Ctx)))
		w.Pass(10 * w.TTL)
		p.Link.Restore()
		w.Pass(5 * w.TTL)
		w.Release(p.Take("other", rwlock.Write))

		q.Take("n", rwlock.Write)
		require.ErrorIs(w, expect.ErrorOf(p.Lock(w.Soon(100*time.Millisecond), "n")), rwlock.ErrNotAcquired)
		w.Pass(50 * time.Millisecond)
		require.Empty(w, w.Inspect("n").Waiters, "who gave up is out of the queue")
		start := time.Now()
		require.NoError(w, p.Close())
		require.Less(w, time.Since(start), w.TTL/2)
	})
}

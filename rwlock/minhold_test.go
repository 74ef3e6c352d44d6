package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A released lease leaves its hold behind until its minimum: nobody enters or joins it, and those who wait see it.
func TestMinHoldKeepsTheName(t *testing.T) {
	everywhere(t, withTwo(func(w *world, p, q *process) {
		for _, mode := range bothModes {
			w.FlushAll()
			lease := p.Take("n", mode, rwlock.WithMinHold(time.Hour))
			require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL, "the minimum is no trust")
			require.NoError(w, lease.Renew(w.Ctx))
			require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL)
			id := w.Inspect("n").Holders[0].Hold
			require.False(w, w.Inspect("n").Holders[0].Ended)
			w.Release(lease)
			require.ErrorIs(w, lease.Err(), rwlock.ErrReleased)
			w.Release(lease)
			for _, other := range []*process{p, q} {
				_, err := other.TryLock(w.Ctx, "n")
				refused := testkit.As[*rwlock.AcquireError](w, err)
				require.NotNil(w, refused.Holder)
				require.True(w, refused.Holder.Ended)
				require.Equal(w, id, refused.Holder.Hold)
				require.Greater(w, refused.Holder.Remaining, time.Hour*9/10)
				require.LessOrEqual(w, refused.Holder.Remaining, time.Hour)
				require.ErrorContains(w, err, "before its minimum, kept for another")
			}
			state := w.Inspect("n")
			require.Len(w, state.Holders, 1)
			require.True(w, state.Holders[0].Ended)
			require.Equal(w, id, state.Holders[0].Hold)
			require.ErrorIs(w, q.Queue("n", rwlock.Write, rwlock.WithMaxWait(w.TTL*2/5)).Failed(), rwlock.ErrNotAcquired)
		}
		w.FlushAll()
	}))
}

// The minimum counts from the grant, by the server's clock, and is over to the millisecond.
func TestMinHoldEndsInTime(t *testing.T) {
	const least = 30 * time.Second
	inFakeTime(t, func(w *world) {
		over := func(_ *process, l *rwlock.Lease) { w.UntilOver(l) }
		for name, c := range map[string]struct {
			end  func(p *process, lease *rwlock.Lease)
			opts []rwlock.LockOption
		}{
			"released at once":       {func(_ *process, l *rwlock.Lease) { w.Release(l) }, nil},
			"released after a while": {func(_ *process, l *rwlock.Lease) { w.Pass(least / 2); w.Release(l) }, nil},
			"upgraded": {func(_ *process, l *rwlock.Lease) {
				w.Pass(least / 3)
				require.NoError(w, l.Downgrade(w.Ctx))
				w.Pass(least / 3)
				require.NoError(w, l.Upgrade(w.Ctx))
				w.Release(l)
			}, nil},
			"closed":                             {func(p *process, _ *rwlock.Lease) { require.NoError(w, p.Close()) }, nil},
			"lost at its limit":                  {over, []rwlock.LockOption{rwlock.WithMaxHold(time.Second)}},
			"not renewed":                        {over, []rwlock.LockOption{rwlock.WithoutRenewal()}},
			"a process that dies":                {func(p *process, _ *rwlock.Lease) { p.Die() }, nil},
			"a process that dies after renewals": {func(p *process, _ *rwlock.Lease) { w.Pass(least * 2 / 3); p.Die() }, nil},
			"a release that is not answered": {func(p *process, l *rwlock.Lease) {
				p.Link.Blackhole(testredis.Both)
				require.Error(w, l.Release(w.Ctx))
				w.Pass(w.TTL / 2)
				p.Link.Restore()
			}, nil},
		} {
			p, q := w.Process(), w.Process()
			lease := p.Take(name, rwlock.Write, append(c.opts, rwlock.WithMinHold(least))...)
			granted := time.Now()
			c.end(p, lease)
			waits := q.Acquire(w.Ctx, name, rwlock.Write)
			w.Release(waits.Granted())
			took := waits.At.Sub(granted)
			require.GreaterOrEqual(w, took, least-time.Millisecond, name)
			require.Less(w, took, least+least/50+w.Refresh(), name)
		}
	})
}

// A minimum that is over, or that belongs to no lease that a caller had, keeps nothing.
func TestMinHoldLeavesNothingElse(t *testing.T) {
	const least = time.Hour
	inFakeTime(t, func(w *world) {
		minimum := rwlock.WithMinHold(least)
		for name, act := range map[string]func(p *process){
			"a lease that lasted longer": func(p *process) {
				lease := p.Take("n", rwlock.Write, rwlock.WithMinHold(w.TTL/2))
				w.Pass(w.TTL)
				w.Release(lease)
			},
			"a hold that was converted": func(p *process) {
				require.NoError(w, p.Take("n", rwlock.Write, minimum).Downgrade(w.Ctx))
				require.Len(w, w.Inspect("n").Holders, 1)
				w.FlushAll()
			},
			"a waiter that gave up": func(p *process) {
				held := w.Process().Take("n", rwlock.Write)
				require.Error(w, expect.ErrorOf(p.Lock(w.Soon(time.Second), "n", minimum)))
				w.Release(held)
			},
			"an answer that came too late": func(p *process) {
				p.Link.DelayDir(testredis.ToClient, 3*time.Second)
				require.Error(w, expect.ErrorOf(p.Lock(w.Soon(2*time.Second), "n", minimum)))
				p.Link.DelayDir(testredis.ToClient, 0)
				w.Pass(2 * time.Second)
			},
			"an adoption that failed": func(p *process) {
				ticket := detach(w, p.Take("n", rwlock.Write))
				q := w.Process()
				q.WarmUp()
				q.Link.Deny(answering("OOM command not allowed", func(cmd []string) bool {
					return w.ScriptOf(cmd) == scripts.Release && testkit.HoldsOf(cmd)[0] == ticket.Hold
				}))
				require.ErrorContains(w, expect.ErrorOf(q.Adopt(w.Ctx, ticket, minimum)), "it can be adopted again")
				w.Settle()
				require.NoError(w, giveBack(p.Adopt(w.Ctx, ticket)))
			},
			"a hold that joined": func(p *process) {
				owner := reentrant.NewOwner()
				outer := expect.NoError(reentrant.New(p.Locker).Lock(reentrant.AsOwner(w.Ctx, owner), "n")).In(w)
				require.NoError(w, giveBack(reentrant.New(w.Process().Locker).Lock(reentrant.AsOwner(w.Ctx, owner), "n", minimum)))
				require.NoError(w, outer.Release(w.Ctx))
			},
		} {
			act(w.Process())
			requireNoMinimum(w, name)
		}
	})
}

// requireNoMinimum requires that the name can be taken, and leaves it free.
func requireNoMinimum(w *world, what string) {
	w.Helper()
	w.Settle()
	require.NoError(w, expect.ErrorOf(w.Process().TryLock(w.Ctx, "n", rwlock.WithMaxHold(time.Millisecond))), what)
	w.Pass(time.Second)
}

// What a call of several locks has taken keeps nothing until the call returns, however it ends.
func TestMinHoldOfSeveralLocksThatFail(t *testing.T) {
	inFakeTime(t, func(w *world) {
		minimum := rwlock.WithMinHold(time.Hour)
		for name, act := range map[string]func(p *process){
			"several locks of which one is taken": func(p *process) {
				held := w.Process().Take("z", rwlock.Write)
				require.Error(w, expect.ErrorOf(p.TryLockAll(w.Ctx, rwlock.Writes("n", "z"), minimum)))
				require.Error(w, expect.ErrorOf(p.LockAll(w.Soon(2*time.Second), rwlock.Writes("n", "z"), minimum)))
				w.Release(held)
			},
			"one of several locks at its limit, while another is waited for": func(p *process) {
				held := w.Process().Take("z", rwlock.Write)
				_, err := p.LockAll(w.Ctx, rwlock.Writes("n", "z"), minimum, rwlock.WithMaxHold(time.Second))
				require.Equal(w, rwlock.ReasonMaxHold, w.Loss(err).Reason)
				w.Release(held)
			},
			"one of several locks that was waited for, at its limit": func(p *process) {
				n, z := w.Process().Take("n", rwlock.Write), w.Process().Take("z", rwlock.Write)
				c := takeAll(p, w.Ctx, rwlock.Writes("n", "z"), minimum, rwlock.WithMaxHold(time.Second))
				w.UntilWaiting("n", 1)
				w.Release(n)
				require.Equal(w, rwlock.ReasonMaxHold, w.Loss(c.failed(w)).Reason)
				w.Release(z)
			},
			"one of several locks that is broken": func(p *process) {
				held := w.Process().Take("z", rwlock.Write)
				c := takeAll(p, w.Ctx, rwlock.Writes("n", "z"), minimum)
				w.UntilWaiting("z", 1)
				require.NoError(w, w.Process().Break(w.Ctx, "n", w.Inspect("n").Holders[0].Hold, "stuck"))
				require.Equal(w, rwlock.ReasonBroken, w.Loss(c.failed(w)).Reason)
				w.Release(held)
			},
			"one of several locks when the locker is closed": func(p *process) {
				held := w.Process().Take("z", rwlock.Write)
				c := takeAll(p, w.Ctx, rwlock.Writes("n", "z"), minimum)
				w.UntilWaiting("z", 1)
				require.NoError(w, p.Close())
				require.ErrorIs(w, c.failed(w), rwlock.ErrClosed)
				w.Release(held)
			},
			"several locks that nest where another goroutine is first": func(p *process) {
				nested := reentrant.New(p.Locker)
				owner := reentrant.WithOwner(w.Ctx)
				a := w.Process().Take("a", rwlock.Write)
				c := w.Call(owner, func(ctx context.Context) error {
					return expect.ErrorOf(nested.LockAll(ctx, rwlock.Writes("a", "n"), minimum, rwlock.WithMaxWait(2*w.TTL)))
				})
				w.UntilWaiting("a", 1)
				n := expect.NoError(nested.RLock(owner, "n")).In(w) // which a write cannot nest in
				w.Release(a)
				require.ErrorIs(w, c.Result(), rwlock.ErrUpgrade)
				require.NoError(w, n.Release(owner))
				w.Settle()
				require.True(w, isFree(w, "a"))
			},
		} {
			act(w.Process())
			requireNoMinimum(w, name)
		}
	})
}

// A hand-off begins the minimum of the waiter, from its own grant.
func TestMinHoldOfAHandOff(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const least = 30 * time.Second
		held := w.Process().Take("n", rwlock.Write)
		first := w.Process().Queue("n", rwlock.Write, rwlock.WithMinHold(least))
		second := w.Process().Queue("n", rwlock.Write)
		w.Pass(5 * time.Second)
		w.Release(held)
		released := time.Now()
		w.Release(first.Granted())
		w.Release(second.Granted())
		require.GreaterOrEqual(w, second.At.Sub(released), least)
		require.Less(w, second.At.Sub(released), least+w.Refresh())
	})
}

// The last release of a reentrant owner keeps the name. The owner does not join what it has ended.
func TestMinHoldOfAReentrantOwner(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		nested := reentrant.New(p.Locker)
		owner := reentrant.AsOwner(w.Ctx, reentrant.NewOwner())
		require.NoError(w, nested.Do(owner, "n", func(ctx context.Context) error {
			require.NoError(w, nested.Do(ctx, "n", func(context.Context) error { return nil }))
			require.False(w, w.Inspect("n").Holders[0].Ended)
			return nil
		}, rwlock.WithMinHold(time.Hour)))
		require.True(w, w.Inspect("n").Holders[0].Ended)
		require.ErrorIs(w, expect.ErrorOf(nested.TryLock(owner, "n")), rwlock.ErrNotAcquired)
		require.False(w, expect.NoError(nested.TryDo(w.Ctx, "n", func(context.Context) error { return nil })).In(w))
	}))
}

// An RWMutex hands its lock on, so it has no minimum.
func TestMinHoldIsNotForAnRWMutex(t *testing.T) {
	inFakeTime(t, func(w *world) {
		refused := testkit.As[*rwlock.OptionError](w, w.Process().RWMutex("n", rwlock.WithMinHold(time.Minute)).Lock(w.Ctx))
		require.Equal(w, "WithMinHold", refused.Option)
		relock(w, w.Process(rwlock.WithMinHold(time.Minute)).RWMutex("n"))
		w.Settle()
		require.Empty(w, w.Inspect("n").Holders)
	})
}

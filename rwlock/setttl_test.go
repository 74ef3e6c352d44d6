package rwlock_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestSetTTL(t *testing.T) {
	everywhere(t, withOne(func(w *world, p *process) {
		for _, mode := range bothModes {
			lease := p.Take("n", mode)
			token := lease.Token()
			for _, ttl := range []time.Duration{time.Hour, w.TTL * 2, w.TTL * 3, w.TTL} {
				require.NoError(w, lease.SetTTL(w.Ctx, ttl))
				require.LessOrEqual(w, time.Until(lease.Deadline()), ttl)
				w.RequireLess(ttl*98/100, time.Until(lease.Deadline()), "it counts at once")
				left := w.Inspect("n").Holders[0].Remaining
				require.LessOrEqual(w, left, ttl)
				require.Greater(w, left, ttl/2)
				require.NoError(w, lease.Renew(w.Ctx))
				require.LessOrEqual(w, time.Until(lease.Deadline()), ttl)
			}
			require.Equal(w, token, lease.Token())
			w.Release(lease)
			require.ErrorIs(w, lease.SetTTL(w.Ctx, w.TTL), rwlock.ErrReleased)
		}
		w.OnlyTokensLeft()
	}))
}

// The TTL stays for all later renewals, for conversions, and for what a process leaves that dies.
func TestSetTTLStays(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		lease := p.Take("n", rwlock.Write)
		const ttl = 40 * time.Second
		require.NoError(w, lease.SetTTL(w.Ctx, ttl))
		renewed := p.Stats().Renewed
		w.Pass(10 * ttl)
		require.NoError(w, lease.Err())
		require.InDelta(w, 30, p.Stats().Renewed-renewed, 5)
		succeed(w, lease.Downgrade, lease.Upgrade)
		require.Greater(w, time.Until(lease.Deadline()), ttl*98/100)
		w.Pass(ttl)
		require.Greater(w, time.Until(lease.Deadline()), ttl*6/10)
		p.Die()
		died := time.Now()
		next := q.Acquire(w.Ctx, "n", rwlock.Write)
		w.Release(next.Granted())
		require.Greater(w, next.At.Sub(died), ttl*6/10)
		require.LessOrEqual(w, next.At.Sub(died), ttl+w.Refresh())
	}))
}

// A shorter TTL ends the trust before the request for it leaves: the server may have it although no answer comes.
func TestAShorterTTLIsNotTrustedLonger(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for _, dir := range []testredis.Direction{testredis.ToServer, testredis.ToClient} {
			p, q := w.Process(), w.Process()
			lease := p.Take("n", rwlock.Write)
			end := watch(lease)
			next := q.Queue("n", rwlock.Write)
			p.Link.Blackhole(dir)
			require.ErrorIs(w, lease.SetTTL(w.Soon(100*time.Millisecond), w.TTL/5), context.DeadlineExceeded)
			require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL/5-100*time.Millisecond)
			p.Link.Blackhole(testredis.Both) // no release tells the server that it is over
			w.UntilOver(lease)
			granted := next.Granted()
			require.True(w, end.before(next.At), "another holds it while the old context lives")
			w.Release(granted)
			p.Link.Restore()
		}
	})
}

// A renewal that was not answered may arrive later. Until it cannot, a longer TTL is not trusted beyond its TTL.
func TestALongerTTLIsNotTrustedWhileAShorterMayArrive(t *testing.T) {
	const longer = time.Hour
	eachInFakeTime(t, map[string]func(w *world, p *process, lease *rwlock.Lease){
		"the connection broke before": func(w *world, p *process, lease *rwlock.Lease) {
			p.Link.Cut()
			p.Link.Restore()
			w.Eventually("it is renewed again", func() bool { return time.Until(lease.Deadline()) > w.TTL*9/10 })
			require.NoError(w, lease.SetTTL(w.Ctx, longer))
		},
		"the connection breaks after": func(w *world, p *process, lease *rwlock.Lease) {
			require.Error(w, lease.SetTTL(w.Ctx, longer), "the master is not asked again before it has answered")
			p.Link.Cut()
			p.Link.Restore()
			w.Eventually("it is renewed again", func() bool { return time.Until(lease.Deadline()) > w.TTL*9/10 })
		},
	}, func(w *world, change func(*world, *process, *rwlock.Lease)) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		p.Link.Blackhole(testredis.ToClient)
		require.Error(w, lease.Renew(w.Ctx))
		change(w, p, lease)
		require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL)
		for range 6 {
			w.Pass(w.TTL)
			require.NoError(w, lease.Err())
			require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL)
		}
		w.Pass(2 * w.TTL)
		require.Greater(w, time.Until(lease.Deadline()), longer/2)
	})
}

// The confirmation of a hand-off is a renewal too: one may arrive after SetTTL. WithReplicas confirms each.
func TestALongerTTLIsNotTrustedWhileAConfirmationMayArrive(t *testing.T) {
	for confirms, opt := range map[string]rwlock.Option{
		"confirmed": rwlock.WithConfirmedHandOff(), "with a replica": rwlock.WithReplicas(1, time.Second),
	} {
		for name, opts := range map[string][]rwlock.LockOption{"renewed": nil, "not renewed": {rwlock.WithoutRenewal()}} {
			subtestInFakeTime(t, confirms+", "+name, func(w *world) { setTTLBeforeALateConfirmation(w, opt, opts) })
		}
	}
}

func setTTLBeforeALateConfirmation(w *world, opt rwlock.Option, opts []rwlock.LockOption) {
	w.Mini.Replicate(1)
	p, q := w.Process(opt), w.Process()
	p.WarmUp()
	first := q.Take("n", rwlock.Write)
	waits := p.Queue("n", rwlock.Write, opts...)
	w.Release(p.Take("other", rwlock.Write)) // with replicas, on a connection that the listener has not taken
	strays := p.Link.Stray()
	w.Release(first)
	w.Pass(50 * time.Millisecond)
	strays.Reset()
	lease := waits.Granted()
	end := watch(lease)
	w.Pass(w.TTL / 10)
	require.NoError(w, lease.SetTTL(w.Ctx, 6*w.TTL))
	require.Greater(w, w.Inspect("n").Holders[0].Remaining, 5*w.TTL)
	strays.Deliver()
	w.Pass(10 * time.Millisecond)
	require.LessOrEqual(w, w.Inspect("n").Holders[0].Remaining, w.TTL, "the late one has set it back")
	require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL)
	next := q.Acquire(w.Soon(3*w.TTL), "n", rwlock.Write)
	if opts == nil {
		require.ErrorIs(w, next.Failed(), context.DeadlineExceeded)
		require.NoError(w, lease.Err())
		return
	}
	p.Link.Blackhole(testredis.Both) // no release tells the server that it is over
	granted := next.Granted()
	require.True(w, end.before(next.At), "another holds it while the old context lives")
	w.Release(granted)
	p.Link.Restore()
}

// A renewal under way has the TTL from before, so SetTTL waits for it.
func TestSetTTLWaitsForARenewalUnderWay(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		p.Link.Delay(50 * time.Millisecond)
		renewal := w.Call(w.Ctx, lease.Renew)
		change := w.Call(w.Ctx, func(ctx context.Context) error { return lease.SetTTL(ctx, time.Hour) })
		require.NoError(w, renewal.Result())
		require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL)
		require.NoError(w, change.Result())
		require.Greater(w, time.Until(lease.Deadline()), time.Hour*9/10)

		renewal = w.Call(w.Ctx, lease.Renew)
		ctx, cancel := context.WithCancel(w.Ctx)
		change = w.Call(ctx, func(ctx context.Context) error { return lease.SetTTL(ctx, w.TTL) })
		cancel()
		require.ErrorIs(w, change.Result(), context.Canceled)
		require.NoError(w, renewal.Result())
		require.Greater(w, time.Until(lease.Deadline()), time.Hour*9/10, "it had not begun")
	}))
}

// A TTL that no acquisition may have is refused before anything is sent or changed.
func TestSetTTLRefuses(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		before := lease.Deadline()
		p.Link.ResetCalls()
		for _, ttl := range []time.Duration{-1, 0, time.Millisecond, 24*time.Hour + 1} {
			refused := testkit.As[*rwlock.OptionError](w, lease.SetTTL(w.Ctx, ttl))
			require.Equal(w, "SetTTL", refused.Option)
			require.Equal(w, ttl, refused.Value)
		}
		require.Empty(w, sent(p.Link))
		require.WithinDuration(w, before, lease.Deadline(), 0)
		w.FlushAll()
		require.ErrorIs(w, lease.SetTTL(w.Ctx, w.TTL), rwlock.ErrLost)
		require.ErrorIs(w, lease.SetTTL(w.Ctx, w.TTL), rwlock.ErrLost)
		other := p.Take("n", rwlock.Write)
		require.NoError(w, p.Close())
		require.ErrorIs(w, other.SetTTL(w.Ctx, w.TTL), rwlock.ErrReleased)
	}))
}

// A lease without renewal lasts for its TTL also where the lock was handed to it, once that is confirmed.
func TestAHandOffWithoutRenewalLastsForItsTTL(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, p := w.Process(), w.Process()
		held := holder.Take("n", rwlock.Write)
		waiter := p.Queue("n", rwlock.Write, rwlock.WithoutRenewal())
		lease := waiter.GrantedAfter(held)
		w.Pass(w.TTL - w.Claim())
		require.NoError(w, lease.Err())
		w.UntilOver(lease)
		require.Greater(w, time.Since(waiter.At), w.TTL*9/10)
	})
}

// The longest duration that there is ends nothing at once: it is no less than the life of any process.
func TestALimitOfCenturies(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const centuries = time.Duration(math.MaxInt64)
		p := w.Process(rwlock.WithReleaseTimeout(centuries), rwlock.WithMaxHold(centuries), rwlock.WithMaxWait(centuries),
			rwlock.WithLinger(centuries))
		w.Pass(time.Second)
		lease, mu := p.Take("n", rwlock.Write), p.RWMutex("m")
		require.NoError(w, mu.Lock(w.Ctx))
		w.Pass(2 * w.TTL)
		require.NoError(w, lease.Err())
		require.NoError(w, mu.Context(w.Ctx).Err())
		require.NoError(w, mu.Unlock(w.Ctx))
		w.Pass(2 * w.TTL)
		require.Equal(w, 1, p.Stats().Lingering)
		w.Release(lease)
	})
}

// A renewal that is asked for while the answer of the round before is on its way is sent when that has come.
func TestARenewalBehindALateAnswerIsConfirmed(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		require.NoError(w, lease.Renew(w.Ctx)) // the script is known
		p.Link.DelayDir(testredis.ToClient, 1500*time.Millisecond)
		require.ErrorIs(w, lease.Renew(w.Ctx), rwlock.ErrNoQuorum, "after a second")
		p.Link.DelayDir(testredis.ToClient, 0)
		w.Pass(200 * time.Millisecond)
		require.NoError(w, lease.Renew(w.Ctx))
		require.InDelta(w, w.TTL.Seconds(), time.Until(lease.Deadline()).Seconds(), 0.2)
	}))
}

// The end of the caller's context is told as that, with the lock, and nothing is sent for one that has ended before.
func TestARenewalThatIsNotWaitedForNamesTheLock(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		p.Link.ResetCalls()
		ctx, cancel := context.WithCancelCause(w.Ctx)
		cancel(errShutdown)
		for _, end := range []error{context.Canceled, errShutdown} {
			require.ErrorIs(w, lease.Renew(ctx), end)
		}
		require.EqualError(w, lease.Renew(ctx), `rwlock: lock "n": renewal not confirmed: shutting down`)
		w.Settle()
		require.Empty(w, sent(p.Link))

		p.Link.Hold(testredis.Both)
		err := lease.Renew(w.Soon(100 * time.Millisecond))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NotErrorIs(w, err, rwlock.ErrNoQuorum)
		require.ErrorContains(w, err, `lock "n"`)
		p.Link.Restore()
	}))
}

// A machine is suspended while a hand-off is on its way to it. Its monotonic clock stands still meanwhile, its wall
// clock and the server's go on: the message tells of a claim that is long over.
func TestHandOffOfBeforeASuspensionIsNotTrusted(t *testing.T) {
	for _, suspended := range []time.Duration{3 * time.Second, 5 * time.Second, time.Minute, 10 * time.Hour} {
		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			name := mode.String() + " lock, suspended for " + suspended.String()
			subtestInFakeTime(t, name, func(w *world) { resume(w, suspended, mode) })
		}
	}
}

func resume(w *world, suspended time.Duration, mode rwlock.Mode) {
	w.Mini.Skew(0) // from now on the server's clock is set by hand
	clock := testkit.NewWallClock(0)
	holder, p := w.Process(), w.Process(clock.Option())
	held := holder.Take("n", rwlock.Write)
	waiter := p.Queue("n", mode)
	w.Pass(1200 * time.Millisecond)
	const late = 40 * time.Millisecond
	p.Link.DelayDir(testredis.ToClient, late)
	w.Release(held)
	w.Pass(late / 4)
	w.Mini.Skew(suspended)
	clock.Step(suspended)
	other := w.Process(testkit.NewWallClock(suspended).Option()).Take("n", rwlock.Write)

	for until := time.Now().Add(w.Claim() + time.Second); time.Now().Before(until) && waiter.IsWaiting(); {
		w.Pass(time.Millisecond)
	}
	if !waiter.IsWaiting() && waiter.Lease != nil {
		require.Error(w, waiter.Lease.Err(), "tokens %v and %v are held at once", waiter.Lease.Token(), other.Token())
	}
	require.NoError(w, other.Err())
	p.Link.Delay(0)
	lease := waiter.GrantedAfter(other)
	require.NoError(w, lease.Err())
	require.Greater(w, lease.Token(), other.Token())
}

// The loss says how late a process was that may have asked late, or not have read an answer that was there.
func TestALossNamesALateProcess(t *testing.T) {
	type lateness struct {
		after time.Duration // from the grant to the pause, in tenths of the TTL
		pause time.Duration // in tenths of the TTL
		late  bool
	}
	eachInFakeTime(t, map[string]lateness{
		"it asked late":                          {after: 2, pause: 6, late: true},
		"it did not run while an answer was due": {after: 4, pause: 8, late: true},
		"it was in time":                         {after: 2, pause: 0},
	}, func(w *world, c lateness) {
		var paused atomic.Int64
		start := time.Now()
		clock := settings.LockerOption(func(l *settings.Locker) {
			l.Clock = func() (time.Duration, time.Time) {
				now := time.Now().Add(time.Duration(paused.Load()))
				return now.Sub(start), now
			}
		})
		w.TTL = 1500 * time.Millisecond // over before the client gives up its connection
		p := w.Process(clock)
		lease := p.Take("n", rwlock.Write)
		p.Link.Blackhole(testredis.Both)
		w.Pass(w.TTL / 10 * c.after)
		paused.Store(int64(w.TTL / 10 * c.pause))
		w.UntilOver(lease)
		require.ErrorContains(w, lease.Err(), "not renewed")
		require.Regexp(w, `mini:6379: no reply in \S+`, lease.Err().Error())
		late := `; this process was busy or paused, its timers were up to \S+ late$`
		if c.late {
			require.Regexp(w, late, lease.Err().Error())
		} else {
			require.NotRegexp(w, late, lease.Err().Error())
		}
		_ = testkit.As[*rwlock.NoReplyError](w, lease.Err())
	})
}

// A renewal sets the expiry that it was asked for, whatever the server's clock was set back by.

func TestServerClockSetBackBlocksNobody(t *testing.T) {
	for _, back := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			subtestInFakeTime(t, mode.String()+" lock, set back by "+back.String(), func(w *world) {
				w.TTL = 2 * time.Second
				w.Mini.Skew(0)
				p, q := w.Process(), w.Process()
				lease := p.Take("n", mode)
				w.Mini.Skew(-back)
				w.Pass(2 * w.TTL)
				require.NoError(w, lease.Err(), "renewed as ever")
				require.LessOrEqual(w, w.Inspect("n").Holders[0].Remaining, w.TTL)
				p.Die()
				died := time.Now()
				next := q.Acquire(w.Ctx, "n", rwlock.Write)
				w.Release(next.Granted())
				require.LessOrEqual(w, next.At.Sub(died), 2*w.TTL, "a crashed holder is in the way for its TTL")
			})
		}
	}
}

// A lease that has ended has no deadline, whatever has ended it, and its contexts say the same.
func TestDeadlineOfAnEndedLeaseIsZero(t *testing.T) {
	eachInFakeTime(t, map[string]func(w *world, p *process, c *testkit.WallClock, l *rwlock.Lease){
		"released": func(w *world, _ *process, _ *testkit.WallClock, l *rwlock.Lease) { w.Release(l) },
		"closed":   func(w *world, p *process, _ *testkit.WallClock, _ *rwlock.Lease) { require.NoError(w, p.Close()) },
		"max hold": func(w *world, _ *process, _ *testkit.WallClock, _ *rwlock.Lease) { w.Pass(time.Minute) },
		"lost": func(w *world, _ *process, _ *testkit.WallClock, l *rwlock.Lease) {
			w.FlushAll()
			require.ErrorIs(w, l.Renew(w.Ctx), rwlock.ErrLost)
		},
		"not noticed yet": func(w *world, _ *process, c *testkit.WallClock, _ *rwlock.Lease) { c.Step(w.TTL) },
	}, func(w *world, end func(*world, *process, *testkit.WallClock, *rwlock.Lease)) {
		clock := testkit.NewWallClock(0)
		p := w.Process(clock.Option())
		lease := p.Take("n", rwlock.Write, rwlock.WithMaxHold(time.Minute))
		ctx := lease.Context(w.Ctx)
		requireDeadline(w, ctx, lease.Deadline())
		require.Positive(w, time.Until(lease.Deadline()))
		end(w, p, clock, lease)
		require.Zero(w, lease.Deadline())
		requireDeadline(w, ctx, time.Time{})
		require.Error(w, lease.Err())
	})
}

// So has a section of an RWMutex whose process keeps the lock, and one that has reached its limit.
func TestDeadlineOfAnEndedSectionIsZero(t *testing.T) {
	inFakeTime(t, func(w *world) {
		m := w.Process().RWMutex("n", rwlock.WithLinger(time.Hour), rwlock.WithMaxHold(time.Minute))
		for _, end := range []func(){func() { require.NoError(w, m.Unlock(w.Ctx)) }, func() { w.Pass(time.Minute) }} {
			require.NoError(w, m.Lock(w.Ctx))
			ctx := m.Context(w.Ctx)
			deadline, _ := fencing.Deadline(ctx, "n")
			require.Positive(w, time.Until(deadline))
			end()
			requireDeadline(w, ctx, time.Time{})
		}
		require.ErrorIs(w, m.Unlock(w.Ctx), rwlock.ErrLost)
	})
}

func requireDeadline(w *world, ctx context.Context, want time.Time) {
	w.Helper()
	deadline, ok := fencing.Deadline(ctx, "n")
	require.True(w, ok)
	require.Equal(w, want, deadline)
}

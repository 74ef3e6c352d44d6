package rwlock_test

import (
	"context"
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

// A machine is suspended while a hand-off is on its way to it. Its monotonic clock stands still meanwhile, its wall
// clock and the server's go on: the message tells of a claim that is long over.
func TestHandOffOfBeforeASuspensionIsNotTrusted(t *testing.T) {
	for _, suspended := range []time.Duration{3 * time.Second, 5 * time.Second, time.Minute, 10 * time.Hour} {
		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			t.Run(mode.String()+" lock, suspended for "+suspended.String(), func(t *testing.T) {
				inFakeTime(t, func(w *world) { resume(w, suspended, mode) })
			})
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

	for until := time.Now().Add(w.Claim() + time.Second); time.Now().Before(until); w.Pass(time.Millisecond) {
		if !waiter.IsWaiting() {
			break
		}
	}
	if !waiter.IsWaiting() && waiter.Lease != nil {
		require.Error(w, waiter.Lease.Err(), "tokens %v and %v are held at once", waiter.Lease.Token(), other.Token())
	}
	require.NoError(w, other.Err())
	p.Link.Delay(0)
	w.Release(other)
	lease := waiter.Granted()
	require.NoError(w, lease.Err())
	require.Greater(w, lease.Token(), other.Token())
}

// The loss says how late a process was that may have asked late, or not have read an answer that was there.
func TestALossNamesALateProcess(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // from the grant to the pause, in tenths of the TTL
		pause time.Duration // in tenths of the TTL
		late  bool
	}{
		"it asked late":                          {after: 2, pause: 6, late: true},
		"it did not run while an answer was due": {after: 4, pause: 8, late: true},
		"it was in time":                         {after: 2, pause: 0},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
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
		})
	}
}

// A renewal sets the expiry that it was asked for, whatever the server's clock was set back by.

func TestServerClockSetBackBlocksNobody(t *testing.T) {
	for _, back := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			t.Run(mode.String()+" lock, set back by "+back.String(), func(t *testing.T) {
				inFakeTime(t, func(w *world) {
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
			})
		}
	}
}

// A lease that has ended has no deadline, whatever has ended it, and its contexts say the same.
func TestDeadlineOfAnEndedLeaseIsZero(t *testing.T) {
	for name, end := range map[string]func(w *world, p *process, c *testkit.WallClock, l *rwlock.Lease){
		"released": func(w *world, _ *process, _ *testkit.WallClock, l *rwlock.Lease) { w.Release(l) },
		"closed":   func(w *world, p *process, _ *testkit.WallClock, _ *rwlock.Lease) { require.NoError(w, p.Close()) },
		"max hold": func(w *world, _ *process, _ *testkit.WallClock, _ *rwlock.Lease) { w.Pass(time.Minute) },
		"lost": func(w *world, _ *process, _ *testkit.WallClock, l *rwlock.Lease) {
			w.FlushAll()
			require.ErrorIs(w, l.Renew(w.Ctx), rwlock.ErrLost)
		},
		"not noticed yet": func(w *world, _ *process, c *testkit.WallClock, _ *rwlock.Lease) { c.Step(w.TTL) },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
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
		})
	}
}

func requireDeadline(w *world, ctx context.Context, want time.Time) {
	w.Helper()
	deadline, ok := fencing.Deadline(ctx, "n")
	require.True(w, ok)
	require.Equal(w, want, deadline)
}

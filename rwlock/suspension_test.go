package rwlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
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

// A renewal that this process came to late leaves the servers little time to answer: the loss says so.
func TestALossNamesARenewalThatCameLate(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var paused atomic.Int64
		start := time.Now()
		clock := settings.LockerOption(func(l *settings.Locker) {
			l.Clock = func() (time.Duration, time.Time) {
				now := time.Now().Add(time.Duration(paused.Load()))
				return now.Sub(start), now
			}
		})
		p := w.Process(clock)
		lease := p.Take("n", rwlock.Write)
		p.Link.Blackhole(testredis.Both)
		w.Pass(w.TTL / 5)
		paused.Store(int64(w.TTL * 3 / 5)) // a renewal was due meanwhile, and the lease has not expired
		w.UntilOver(lease)
		require.ErrorContains(w, lease.Err(), "no renewal was confirmed in time")
		require.Regexp(w, `mini:6379: no reply in \S+; this process sent the request \S+ late`, lease.Err().Error())
		var silence *rwlock.NoReplyError
		require.ErrorAs(w, lease.Err(), &silence)
	})
}

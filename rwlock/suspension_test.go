package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	w.mini.Skew(0) // from now on the server's clock is set by hand
	clock := newWallClock(0)
	holder, p := w.process(), w.process(clock.option())
	held := holder.lock("n", rwlock.Write)
	waiter := p.queue("n", mode)
	w.pass(1200 * time.Millisecond)
	const late = 40 * time.Millisecond
	p.link.DelayDir(testredis.ToClient, late)
	w.release(held)
	w.pass(late / 4)
	w.mini.Skew(suspended)
	clock.step(suspended)
	other := w.process(newWallClock(suspended).option()).lock("n", rwlock.Write)

	for until := time.Now().Add(w.claim() + time.Second); time.Now().Before(until); w.pass(time.Millisecond) {
		if !waiter.isWaiting() {
			break
		}
	}
	if !waiter.isWaiting() && waiter.lease != nil {
		require.Error(w.t, waiter.lease.Err(), "tokens %v and %v are held at once", waiter.lease.Token(), other.Token())
	}
	require.NoError(w.t, other.Err())
	p.link.Delay(0)
	w.release(other)
	lease := waiter.granted()
	require.NoError(w.t, lease.Err())
	require.Greater(w.t, lease.Token(), other.Token())
}

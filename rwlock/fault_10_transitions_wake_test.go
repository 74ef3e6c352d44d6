package rwlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F10: every transition that can admit someone wakes them; a bounded poll finds whatever a lost message missed.

// transitions are the ways in which room is made for a reader that waits. Each begins before the waiter queues and
// returns what makes room; soon is how long the waiter then waits at most when it is told.
var transitions = []struct {
	name  string
	soon  time.Duration
	block func(w *world) (makeRoom func())
}{
	{"a writer releases", 0, func(w *world) func() {
		held := w.process().lock("n", rwlock.Write)
		return func() { w.release(held) }
	}},
	{"a waiting writer gives up", 0, func(w *world) func() {
		p := w.process()
		p.lock("n", rwlock.Read)
		ctx, cancel := context.WithCancel(w.ctx)
		p.acquire(ctx, "n", rwlock.Write)
		w.untilWaiting("n", 1)
		return cancel
	}},
	{"the process of a waiting writer closes", 0, func(w *world) func() {
		p := w.process()
		w.process().lock("n", rwlock.Read)
		p.queue("n", rwlock.Write)
		return func() { require.NoError(w.t, p.Close()) }
	}},
	// What expires is noticed by whoever asks next; a waiter asks at the expiry that it was told of.
	{"a holder expires", 3 * time.Millisecond, func(w *world) func() {
		p := w.process()
		lease := p.lock("n", rwlock.Write, rwlock.WithoutRenewal())
		p.die()
		return func() { w.pass(time.Until(lease.Deadline().Add(w.ttl/100 + 2*time.Millisecond))) }
	}},
	{"a waiting writer dies", 1003 * time.Millisecond, func(w *world) func() {
		p := w.process()
		w.process().lock("n", rwlock.Read)
		p.queue("n", rwlock.Write)
		return func() { p.die(); w.pass(w.claim()) }
	}},
}

func TestF10TransitionWakesWhoMayEnter(t *testing.T) {
	for _, c := range transitions {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				makeRoom := c.block(w)
				waiter := w.process().queue("n", rwlock.Read)
				w.pass(w.refresh() / 3)
				makeRoom()
				since := time.Now()
				waiter.granted()
				require.LessOrEqual(w.t, waiter.at.Sub(since), c.soon)
			})
		})
	}
}

func TestF10LostMessageCostsOneRefresh(t *testing.T) {
	for _, c := range transitions {
		t.Run(c.name, func(t *testing.T) {
			for wait := time.Duration(0); wait < time.Second; wait += 90 * time.Millisecond {
				inFakeTime(t, func(w *world) {
					makeRoom := c.block(w)
					p := w.process()
					var lost atomic.Int32
					p.link.DropPushes(func(push []string) bool {
						if push[0] != "message" {
							return false
						}
						lost.Add(1)
						return true
					})
					waiter := p.queue("n", rwlock.Read)
					w.pass(wait)
					makeRoom()
					since := time.Now()
					waiter.granted()
					require.LessOrEqual(w.t, waiter.at.Sub(since), w.refresh())
					require.Positive(w.t, lost.Load(), "there was no message to lose")
					w.pass(2 * w.ttl)
					require.NoError(w.t, waiter.lease.Err())
				})
			}
		})
	}
}

func TestF10LostMessageOnARealServer(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		held := p.lock("n", rwlock.Write)
		q.link.DropPushes(func(push []string) bool { return push[0] == "message" })
		waiter := q.queue("n", rwlock.Write)
		since := time.Now()
		w.release(held)
		w.release(waiter.granted())
		w.requireLess(waiter.at.Sub(since), w.refresh()*2, "one refresh finds the grant")
	})
}

func TestF10WaiterKilledWhileItWaitsHoldsNobodyUp(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, dead, p := w.process(), w.process(), w.process()
		held := holder.lock("n", rwlock.Write)
		dead.queue("n", rwlock.Write)
		next := p.queue("n", rwlock.Write)
		dead.die()
		w.pass(w.claim() + time.Second)
		require.Len(w.t, w.inspect("n").Waiters, 1, "it dropped out")
		released := time.Now()
		w.release(held)
		w.release(next.granted())
		require.Equal(w.t, released, next.at)
	})
}

// The waiter's process has died: its message reaches nobody, and the next is granted by the same script.
func TestF10DeadProcessIsPassedOver(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, mode := range bothModes {
			holder, dead, p := w.process(), w.process(), w.process()
			for i, waiter := range []*process{dead, p} { // it is known from now on that they listen
				held := holder.lock("subscribe", rwlock.Write)
				next := waiter.queue("subscribe", rwlock.Write)
				w.eventually("it listens", func() bool { return len(w.command("PUBSUB", "CHANNELS").([]any)) == i+1 })
				w.release(held)
				w.release(next.granted())
			}
			held := holder.lock("n", rwlock.Write)
			dead.queue("n", mode)
			dead.queue("n", rwlock.Write)
			next := p.queue("n", rwlock.Write)
			dead.link.Refuse()
			dead.link.Cut()
			w.eventually("the dead one does not listen", func() bool {
				return len(w.command("PUBSUB", "CHANNELS").([]any)) == 1
			})
			w.release(held)
			s := w.inspect("n")
			require.Len(w.t, s.Holders, 1)
			require.Equal(w.t, rwlock.Write, s.Holders[0].Mode)
			lease := next.granted()
			require.Equal(w.t, lease.Owner(), s.Holders[0].Owner, "granted at once, not after the dead one's claim")
			w.release(lease)
			for _, process := range []*process{dead, p} {
				require.NoError(w.t, process.Close())
			}
			w.eventually("nobody listens", func() bool { return len(w.command("PUBSUB", "CHANNELS").([]any)) == 0 })
		}
	})
}

// The hand-off goes to a machine that went away without a word, so its connections seem to stand: it is never
// confirmed, and lapses after the claim time.
func TestF10HandOffToADeadProcessLapses(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute} {
		for _, mode := range bothModes {
			inFakeTime(t, func(w *world) {
				w.ttl = ttl
				holder, dead, p := w.process(), w.process(), w.process()
				held := holder.lock("n", rwlock.Write)
				dead.queue("n", mode)
				dead.queue("n", rwlock.Write)
				next := p.queue("n", rwlock.Write)
				w.pass(w.refresh() / 2)
				dead.link.Blackhole(testredis.Both)
				died := time.Now()
				w.release(held)
				s := w.inspect("n")
				require.Len(w.t, s.Holders, 1, "handed to the dead one")
				require.Equal(w.t, mode, s.Holders[0].Mode)
				require.LessOrEqual(w.t, s.Holders[0].Remaining, w.claim())
				next.granted()
				require.LessOrEqual(w.t, next.at.Sub(died), w.claim()+3*time.Millisecond, "TTL %v", ttl)
			})
		}
	}
}

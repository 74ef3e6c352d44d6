package rwlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F10: every transition that can admit someone wakes them; a bounded poll finds whatever a lost message missed.

type transition struct {
	soon  time.Duration
	block func(w *world) (makeRoom func())
}

// transitions are the ways in which room is made for a reader that waits. Each begins before the waiter queues and
// returns what makes room; soon is how long the waiter then waits at most when it is told.
var transitions = map[string]transition{
	"a writer releases": {0, func(w *world) func() {
		held := w.Process().Take("n", rwlock.Write)
		return func() { w.Release(held) }
	}},
	"a waiting writer gives up": {0, func(w *world) func() {
		p := w.Process()
		p.Take("n", rwlock.Read)
		ctx, cancel := context.WithCancel(w.Ctx)
		p.Acquire(ctx, "n", rwlock.Write)
		w.UntilWaiting("n", 1)
		return cancel
	}},
	"the process of a waiting writer closes": {0, func(w *world) func() {
		p := w.Process()
		w.Process().Take("n", rwlock.Read)
		p.Queue("n", rwlock.Write)
		return func() { require.NoError(w, p.Close()) }
	}},
	// What expires is noticed by whoever asks next; a waiter asks at the expiry that it was told of.
	"a holder expires": {3 * time.Millisecond, func(w *world) func() {
		p := w.Process()
		lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
		p.Die()
		return func() { w.Pass(time.Until(lease.Deadline().Add(w.TTL/100 + 2*time.Millisecond))) }
	}},
	"a waiting writer dies": {1003 * time.Millisecond, func(w *world) func() {
		p := w.Process()
		w.Process().Take("n", rwlock.Read)
		p.Queue("n", rwlock.Write)
		return func() { p.Die(); w.Pass(w.Claim()) }
	}},
}

func TestF10TransitionWakesWhoMayEnter(t *testing.T) {
	eachInFakeTime(t, transitions, func(w *world, c transition) {
		makeRoom := c.block(w)
		waiter := w.Process().Queue("n", rwlock.Read)
		w.Pass(w.Refresh() / 3)
		makeRoom()
		since := time.Now()
		waiter.Granted()
		require.LessOrEqual(w, waiter.At.Sub(since), c.soon)
	})
}

func TestF10LostMessageCostsOneRefresh(t *testing.T) {
	testkit.Each(t, transitions, func(t *testing.T, c transition) {
		for wait := time.Duration(0); wait < time.Second; wait += every * 2 / 3 {
			inFakeTime(t, func(w *world) {
				makeRoom := c.block(w)
				p := w.Process()
				var lost atomic.Int32
				p.Link.DropPushes(func(push []string) bool {
					if push[0] != "message" {
						return false
					}
					lost.Add(1)
					return true
				})
				waiter := p.Queue("n", rwlock.Read)
				w.Pass(wait)
				makeRoom()
				since := time.Now()
				waiter.Granted()
				require.LessOrEqual(w, waiter.At.Sub(since), w.Refresh())
				require.Positive(w, lost.Load(), "there was no message to lose")
				w.Pass(2 * w.TTL)
				require.NoError(w, waiter.Lease.Err())
			})
		}
	})
}

// The waiter's process has died: its message reaches nobody, and the next is granted by the same script.
func TestF10DeadProcessIsPassedOver(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for _, mode := range bothModes {
			holder, dead, p := w.Process(), w.Process(), w.Process()
			for i, waiter := range []*process{dead, p} { // it is known from now on that they listen
				held := holder.Take("subscribe", rwlock.Write)
				next := waiter.Queue("subscribe", rwlock.Write)
				w.Eventually("it listens", func() bool { return len(w.Command("PUBSUB", "CHANNELS").([]any)) == i+1 })
				w.Release(next.GrantedAfter(held))
			}
			held := holder.Take("n", rwlock.Write)
			dead.Queue("n", mode)
			dead.Queue("n", rwlock.Write)
			next := p.Queue("n", rwlock.Write)
			dead.CutOff(0)
			w.Eventually("the dead one does not listen", func() bool {
				return len(w.Command("PUBSUB", "CHANNELS").([]any)) == 1
			})
			w.Release(held)
			s := w.Inspect("n")
			require.Len(w, s.Holders, 1)
			require.Equal(w, rwlock.Write, s.Holders[0].Mode)
			lease := next.Granted()
			require.Equal(w, lease.Owner(), s.Holders[0].Owner, "granted at once, not after the dead one's claim")
			w.Release(lease)
			for _, process := range []*process{dead, p} {
				require.NoError(w, process.Close())
			}
			w.Eventually("nobody listens", func() bool { return len(w.Command("PUBSUB", "CHANNELS").([]any)) == 0 })
		}
	})
}

// The hand-off to a machine that went away without a word is never confirmed, and lapses after the claim time.
func TestF10HandOffToADeadProcessLapses(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute} {
		for _, mode := range bothModes {
			inFakeTime(t, func(w *world) {
				w.TTL = ttl
				holder, dead, p := w.Process(), w.Process(), w.Process()
				held := holder.Take("n", rwlock.Write)
				dead.Queue("n", mode)
				dead.Queue("n", rwlock.Write)
				next := p.Queue("n", rwlock.Write)
				w.Pass(w.Refresh() / 2)
				dead.Link.Blackhole(testredis.Both)
				died := time.Now()
				w.Release(held)
				s := w.Inspect("n")
				require.Len(w, s.Holders, 1, "handed to the dead one")
				require.Equal(w, mode, s.Holders[0].Mode)
				require.LessOrEqual(w, s.Holders[0].Remaining, w.Claim())
				next.Granted()
				require.LessOrEqual(w, next.At.Sub(died), w.Claim()+3*time.Millisecond, "TTL %v", ttl)
			})
		}
	}
}

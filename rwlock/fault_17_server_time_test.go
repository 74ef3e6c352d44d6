package rwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F17: the protocol knows the server's time only. A client's own clocks end its trust, both of them, and a jump of the
// wall clock counts as a loss.

// wallClock is a machine's wall clock that can be set; its monotonic clock is that of the test.
type wallClock struct {
	start time.Time
	mu    sync.Mutex
	ahead time.Duration
}

// newWallClock returns a clock that is so much ahead of the server's.
func newWallClock(ahead time.Duration) *wallClock { return &wallClock{start: time.Now(), ahead: ahead} }

// step sets the clock forward, or back.
func (c *wallClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func (c *wallClock) option() rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) {
		l.Clock = func() (time.Duration, time.Time) {
			c.mu.Lock()
			defer c.mu.Unlock()
			now := time.Now()
			return now.Sub(c.start), now.Add(c.ahead)
		}
	})
}

// A suspended machine wakes up: the monotonic clock stood still, the wall clock went on. The lease ends at the first
// look, at the latest within a second, although by the monotonic clock nearly all of its TTL is left.
func TestF17JumpForwardIsALoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for _, jump := range []time.Duration{w.ttl, time.Hour, 100 * 24 * time.Hour} {
			clock := newWallClock(0)
			p := w.process(clock.option())
			asked, watched := p.lock("asked", rwlock.Write), p.lock("watched", rwlock.Read)
			ctx := watched.Context(w.ctx)
			clock.step(jump)

			var lost *rwlock.LostError
			require.ErrorAs(w.t, asked.Err(), &lost, "known at the first question")
			require.Equal(w.t, rwlock.Paused, lost.Reason)
			require.Equal(w.t, "asked", lost.Name)
			require.ErrorIs(w.t, asked.Release(w.ctx), rwlock.ErrLost)

			w.pass(time.Second)
			require.Error(w.t, ctx.Err(), "known within a second to those who do not ask")
			require.ErrorAs(w.t, context.Cause(ctx), &lost)
			require.Equal(w.t, rwlock.Paused, lost.Reason)
			require.ErrorContains(w.t, lost, `"watched"`)
			require.ErrorContains(w.t, lost, "paused")
			require.EqualValues(w.t, 2, p.Stats().Lost)
			w.onlyTokensLeft() // what was lost is given back all the same
		}
	})
}

// A jump that ends before the deadline changes nothing but the time that is left.
func TestF17SmallJumpIsNoLoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := newWallClock(0)
		p := w.process(clock.option())
		lease := p.lock("n", rwlock.Write)
		clock.step(w.ttl / 2)
		require.NoError(w.t, lease.Err())
		w.pass(10 * w.ttl)
		require.NoError(w.t, lease.Err())
		w.release(lease)
	})
}

// A wall clock that is set back, however far, lengthens no lease: the monotonic clock ends it.
func TestF17StepBackLengthensNothing(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := newWallClock(0)
		p := w.process(clock.option())
		lease := p.lock("n", rwlock.Write)
		clock.step(-24 * time.Hour)
		w.pass(3 * w.ttl)
		require.NoError(w.t, lease.Err(), "renewed as ever")

		p.link.Blackhole(testredis.Both)
		cut := time.Now()
		clock.step(-24 * time.Hour)
		ended := watch(lease)
		w.untilOver(lease)
		require.LessOrEqual(w.t, time.Since(cut), w.ttl)
		w.settle()
		require.True(w.t, ended.before(cut.Add(w.ttl)))
	})
}

// Clients whose wall clocks are hours apart take turns as all others do; their tokens and the times that others see
// come from the server.
func TestF17SkewedClientsChangeNothing(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var turns []*process
		for _, skew := range []time.Duration{-5 * time.Hour, 0, 7 * time.Hour, -24 * 365 * time.Hour} {
			turns = append(turns, w.process(newWallClock(skew).option()))
		}
		held := turns[0].lock("n", rwlock.Write)
		for round := range 3 {
			for i := range turns {
				next := turns[(i+1)%len(turns)].queue("n", rwlock.Write)
				w.pass(3 * w.ttl) // the holder renews
				require.NoError(w.t, held.Err())

				s := w.inspect("n")
				require.Len(w.t, s.Holders, 1)
				require.InDelta(w.t, 3*w.ttl, s.Holders[0].Held, float64(w.claim()))
				require.LessOrEqual(w.t, s.Holders[0].Remaining, w.ttl)
				require.Positive(w.t, s.Holders[0].Remaining)

				before := time.Now()
				w.release(held)
				after := next.granted()
				require.Greater(w.t, after.Token(), held.Token(), "round %d", round)
				require.EqualValues(w.t, before.UnixMicro(), after.Token(), "the server's time in microseconds")
				held = after
			}
		}
		w.release(held)
		w.onlyTokensLeft()
	})
}

// A server whose own clock is hours off serves all the same, and one whose clock steps back goes on with its tokens.
func TestF17SkewedServerChangesNothing(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		var last rwlock.State
		for _, skew := range []time.Duration{-5 * time.Hour, 7 * time.Hour, 0} {
			w.mini.Skew(skew)
			held := p.lock("n", rwlock.Write)
			next := q.queue("n", rwlock.Write)
			w.pass(3 * w.ttl)
			require.NoError(w.t, held.Err())
			w.release(held)
			w.release(next.granted())
			s := w.inspect("n")
			require.Greater(w.t, s.Token, last.Token, "the server's clock %v ahead", skew)
			last = s
		}
		w.onlyTokensLeft()
	})
}

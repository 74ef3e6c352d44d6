package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F17: the protocol knows the server's time only. A client's own clocks end its trust; a jump counts as a loss.

// A suspended machine wakes up: the monotonic clock stood still, the wall clock went on. The lease ends at the first
// look, at the latest within a second, although by the monotonic clock nearly all of its TTL is left.
func TestF17JumpForwardIsALoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for _, jump := range []time.Duration{w.TTL, time.Hour, 100 * 24 * time.Hour} {
			clock := testkit.NewWallClock(0)
			p := w.Process(clock.Option())
			asked, watched := p.Take("asked", rwlock.Write), p.Take("watched", rwlock.Read)
			ctx := watched.Context(w.Ctx)
			clock.Step(jump)

			lost := testkit.As[*rwlock.LostError](w, asked.Err(), "known at the first question")
			require.Equal(w, rwlock.ReasonPaused, lost.Reason)
			require.Equal(w, "asked", lost.Name)
			require.ErrorIs(w, asked.Release(w.Ctx), rwlock.ErrLost)

			w.Pass(time.Second)
			require.Error(w, ctx.Err(), "known within a second to those who do not ask")
			require.ErrorAs(w, context.Cause(ctx), &lost)
			require.Equal(w, rwlock.ReasonPaused, lost.Reason)
			expect.Fails(w, lost, `"watched"`, "lost: paused (its TTL is 10s); advice: WithTTL above the longest pause")
			require.EqualValues(w, 2, p.Stats().Lost.Total())
			w.OnlyTokensLeft() // what was lost is given back all the same
		}
	})
}

// A wall clock that is set back, however far, lengthens no lease: the monotonic clock ends it.
func TestF17StepBackLengthensNothing(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := testkit.NewWallClock(0)
		p := w.Process(clock.Option())
		lease := p.Take("n", rwlock.Write)
		clock.Step(-24 * time.Hour)
		w.Pass(3 * w.TTL)
		require.NoError(w, lease.Err(), "renewed as ever")

		p.Link.Blackhole(testredis.Both)
		cut := time.Now()
		clock.Step(-24 * time.Hour)
		ended := watch(lease)
		w.UntilOver(lease)
		require.LessOrEqual(w, time.Since(cut), w.TTL)
		w.Settle()
		require.True(w, ended.before(cut.Add(w.TTL)))
	})
}

// Clients whose wall clocks are hours apart take turns as all others do: tokens and times come from the server.
func TestF17SkewedClientsChangeNothing(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var turns []*process
		for _, skew := range []time.Duration{-5 * time.Hour, 0, 7 * time.Hour, -24 * 365 * time.Hour} {
			turns = append(turns, w.Process(testkit.NewWallClock(skew).Option()))
		}
		held := turns[0].Take("n", rwlock.Write)
		for round := range 3 {
			for i := range turns {
				next := turns[(i+1)%len(turns)].Queue("n", rwlock.Write)
				w.Pass(3 * w.TTL) // the holder renews
				require.NoError(w, held.Err())

				s := w.Inspect("n")
				require.Len(w, s.Holders, 1)
				require.InDelta(w, 3*w.TTL, s.Holders[0].Held, float64(w.Claim()))
				require.LessOrEqual(w, s.Holders[0].Remaining, w.TTL)
				require.Positive(w, s.Holders[0].Remaining)

				before := time.Now()
				after := next.GrantedAfter(held)
				require.Greater(w, after.Token(), held.Token(), "round %d", round)
				require.EqualValues(w, before.UnixMicro(), after.Token(), "the server's time in microseconds")
				held = after
			}
		}
		w.Release(held)
		w.OnlyTokensLeft()
	})
}

// A server whose own clock is hours off serves all the same, and one whose clock steps back goes on with its tokens.
func TestF17SkewedServerChangesNothing(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		var last rwlock.State
		for _, skew := range []time.Duration{-5 * time.Hour, 7 * time.Hour, 0} {
			w.Mini.Skew(skew)
			held := p.Take("n", rwlock.Write)
			next := q.Queue("n", rwlock.Write)
			w.Pass(3 * w.TTL)
			require.NoError(w, held.Err())
			w.Release(next.GrantedAfter(held))
			s := w.Inspect("n")
			require.Greater(w, s.Token, last.Token, "the server's clock %v ahead", skew)
			last = s
		}
		w.OnlyTokensLeft()
	}))
}

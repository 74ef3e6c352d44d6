package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// breakHolds is an operator of a simulation, who breaks holds and waiters of any lock, whatever his masters show. He
// waits for their ends, and keeps the exclusion that their processes were promised: the checker looks at that.
func (s *simulation) breakHolds(ctx context.Context, operator *process, rng *rand.Rand) {
	defer operator.Close()
	done := 0
	for ctx.Err() == nil {
		pause(ctx, upTo(rng, 100*time.Millisecond))
		name := s.names[rng.IntN(len(s.names))]
		state, _ := operator.Inspect(ctx, name)
		var holds []string
		for _, m := range state.Masters {
			for _, h := range m.Holders {
				holds = append(holds, h.Hold)
			}
			for _, w := range m.Waiters {
				holds = append(holds, w.Hold)
			}
		}
		if len(holds) == 0 {
			continue
		}
		wait, cancel := context.WithTimeout(ctx, upTo(rng, 2*simTTL))
		err := operator.Break(wait, name, holds[rng.IntN(len(holds))], "drawn")
		cancel()
		if err == nil {
			done++
		} else if !errors.Is(err, rwlock.ErrNotHeld) && !errors.Is(err, rwlock.ErrNoQuorum) && wait.Err() == nil {
			s.Errorf("seed %d: break: %v", s.seed, err)
		}
	}
	s.Logf("%d holds broken", done)
}

// A hold is broken where a quorum hears of it. What a minority hears ends it too, but is no promise.
func TestBreakNeedsAQuorum(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		holder, waiter, operator := w.Process(), w.Process(), w.Process(rwlock.WithMeta("operator"))
		holder.Section("warm-up")
		lease := holder.Take("x", rwlock.Write)
		next := waiter.InTurn(w.Ctx, "x", rwlock.Write)
		state := w.Inspect("x")
		hold := state.Holders[0].Hold

		operator.CutOff(0, 1, 2)
		err := operator.Break(w.Ctx, "x", hold, "too few")
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		var quorum *rwlock.QuorumError
		require.ErrorAs(w, err, &quorum)
		require.Equal(w, 2, quorum.Got)
		require.Equal(w, 3, quorum.Need)
		require.Len(w, quorum.Nodes, 3)
		w.UntilOver(lease)
		lost := w.Loss(lease.Err())
		require.Equal(w, rwlock.ReasonBroken, lost.Reason)
		var by *rwlock.BrokenError
		require.ErrorAs(w, lost, &by)
		require.Equal(w, "operator", by.By)
		next.Granted()
		operator.Restore(0, 1, 2)
		time.Sleep(time.Second) // the locker leaves a master that has failed alone for a moment
		require.ErrorIs(w, operator.Break(w.Ctx, "x", hold, "again"), rwlock.ErrNotHeld)
	})
}

// Until its time is over, a holder that hears nothing keeps out all others, and its hold does not come back.
func TestABrokenHoldKeepsItsTime(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		holder, waiter, operator := w.Process(), w.Process(), w.Process(rwlock.WithMeta("operator"))
		holder.Section("warm-up")
		lease := holder.Take("x", rwlock.Write)
		hold := w.Inspect("x").Holders[0].Hold
		holder.CutOff(0, 1, 2)
		broken := w.Call(w.Ctx, func(ctx context.Context) error { return operator.Break(ctx, "x", hold, "cut off") })
		next := waiter.Acquire(w.Ctx, "x", rwlock.Write)
		time.Sleep(time.Second)
		require.NoError(w, lease.Err())
		state := w.Inspect("x")
		require.Equal(w, hold, state.Holders[0].Hold, "its process trusts in it")
		require.True(w, state.Holders[0].Broken)
		require.Equal(w, lease.Token(), state.Holders[0].Token)
		require.Len(w, state.Waiters, 1)
		w.UntilOver(lease)
		require.NoError(w, broken.Result())
		later := next.Granted()
		require.Greater(w, later.Token(), lease.Token())
		holder.Restore(0, 1, 2)
		time.Sleep(w.TTL)
		require.NoError(w, later.Err())
		w.Release(later)
	})
}

// With one master of three missing, or empty after a restart, holders and waiters are broken as ever; with two missing
// no quorum is left. What a Break has begun goes on when it is repeated.
func TestBreakWithoutAllMasters(t *testing.T) {
	for name, ail := range map[string]func(w *world, all ...*process){
		"missing": func(_ *world, all ...*process) {
			for _, p := range all {
				p.CutOff(2)
			}
		},
		"restarted": func(w *world, _ ...*process) { w.Minis[2].Crash() },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 3, func(w *world) {
				holder, waiter, operator := w.Process(), w.Process(), w.Process(rwlock.WithMeta("operator"))
				holder.Section("warm-up")
				for i, opts := range [][]rwlock.BreakOption{nil, {rwlock.BreakNow()}} {
					for _, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
						lease := holder.Take("x", mode)
						first, second := waiter.InTurn(w.Ctx, "x", rwlock.Write), waiter.InTurn(w.Ctx, "x", rwlock.Write)
						w.UntilWaiting("x", 2)
						if i == 0 && mode == rwlock.Read {
							ail(w, holder, waiter, operator)
						}
						state, err := operator.Inspect(w.Ctx, "x")
						require.NoError(w, err)
						require.NoError(w, operator.Break(w.Ctx, "x", state.Waiters[0].Hold, "waits", opts...))
						require.NoError(w, operator.Break(w.Ctx, "x", lease.Owner(), "holds", opts...))
						require.ErrorIs(w, operator.Break(w.Ctx, "x", lease.Owner(), "again", opts...), rwlock.ErrNotHeld)
						w.UntilOver(lease)
						require.Equal(w, rwlock.ReasonBroken, w.Loss(lease.Err()).Reason)
						first.Wait()
						second.Wait()
						require.NotEqual(w, first.Err == nil, second.Err == nil, "%v, %v", first.Err, second.Err)
						require.ErrorAs(w, errors.Join(first.Err, second.Err), new(*rwlock.BrokenError))
					}
				}
			})
		})
	}
}

// The end of the context, and Close, end a Break that waits, and the hold stays unrenewable.
func TestBreakThatIsGivenUp(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		holder, operator, other := w.Process(), w.Process(), w.Process(rwlock.WithMeta("other"))
		holder.Section("warm-up")
		lease := holder.Take("x", rwlock.Write)
		holder.CutOff(0, 1, 2)
		operator.CutOff(2)
		ctx, cancel := context.WithTimeout(w.Ctx, 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(w, operator.Break(ctx, "x", lease.Owner(), "first"), context.DeadlineExceeded)
		waiting := w.Call(w.Ctx, func(ctx context.Context) error {
			return operator.Break(ctx, "x", lease.Owner(), "second")
		})
		time.Sleep(100 * time.Millisecond)
		require.NoError(w, operator.Close())
		require.ErrorIs(w, waiting.Result(), rwlock.ErrClosed)
		require.NoError(w, lease.Err())
		other.CutOff(1, 2)
		require.ErrorIs(w, other.Break(w.Ctx, "x", lease.Owner(), "third"), rwlock.ErrNoQuorum)
		w.UntilOver(lease) // it was not renewed: no quorum has it with its token
		other.Restore(1, 2)
		later := other.Take("x", rwlock.Write)
		require.Greater(w, later.Token(), lease.Token())
		w.Release(later)
	})
}

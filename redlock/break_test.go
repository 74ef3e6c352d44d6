package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
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
		holder, waiter, operator := warm(w), w.Process(), w.Process(rwlock.WithMeta("operator"))
		lease := holder.Take("x", rwlock.Write)
		next := waiter.InTurn(w.Ctx, "x", rwlock.Write)
		hold := w.Inspect("x").Holders[0].Hold

		operator.CutOff(0, 1, 2)
		err := operator.Break(w.Ctx, "x", hold, "too few")
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		quorum := testkit.As[*rwlock.QuorumError](w, err)
		require.Equal(w, 2, quorum.Got)
		require.Equal(w, 3, quorum.Need)
		require.Len(w, quorum.Nodes, 3)
		w.UntilOver(lease)
		lost := w.Loss(lease.Err())
		require.Equal(w, rwlock.ReasonBroken, lost.Reason)
		require.Equal(w, "operator", testkit.As[*rwlock.BrokenError](w, lost).By)
		next.Granted()
		operator.Restore(0, 1, 2)
		time.Sleep(time.Second) // the locker leaves a master that has failed alone for a moment
		require.ErrorIs(w, operator.Break(w.Ctx, "x", hold, "again"), rwlock.ErrNotHeld)
	})
}

// Until its time is over, a holder that hears nothing keeps out all others, and its hold does not come back.
func TestABrokenHoldKeepsItsTime(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		holder, waiter, operator := warm(w), w.Process(), w.Process(rwlock.WithMeta("operator"))
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
	eachInFakeTime(t, 3, map[string]func(w *world, all ...*process){
		"missing": func(_ *world, all ...*process) {
			for _, p := range all {
				p.CutOff(2)
			}
		},
		"restarted": func(w *world, _ ...*process) { w.Minis[2].Crash() },
	}, func(w *world, ail func(w *world, all ...*process)) {
		holder, waiter, operator := warm(w), w.Process(), w.Process(rwlock.WithMeta("operator"))
		for i, opts := range [][]rwlock.BreakOption{nil, {rwlock.BreakNow()}} {
			for _, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
				lease := holder.Take("x", mode)
				first, second := waiter.InTurn(w.Ctx, "x", rwlock.Write), waiter.InTurn(w.Ctx, "x", rwlock.Write)
				w.UntilWaiting("x", 2)
				if i == 0 && mode == rwlock.Read {
					ail(w, holder, waiter, operator)
				}
				state := expect.NoError(operator.Inspect(w.Ctx, "x")).In(w)
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
}

// The end of the context, and Close, end a Break that waits, and the hold stays unrenewable.
func TestBreakThatIsGivenUp(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		holder, operator, other := warm(w), w.Process(), w.Process(rwlock.WithMeta("other"))
		lease := holder.Take("x", rwlock.Write)
		holder.CutOff(0, 1, 2)
		operator.CutOff(2)
		soon := w.Soon(100 * time.Millisecond)
		require.ErrorIs(w, operator.Break(soon, "x", lease.Owner(), "first"), context.DeadlineExceeded)
		waiting := w.Call(w.Ctx, func(ctx context.Context) error { return operator.Break(ctx, "x", lease.Owner(), "second") })
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

// breakOnRelease has an operator break each hold before the first release of it gets to a master.
func breakOnRelease(w *world, p, operator *process) (broken *atomic.Int32) {
	broken = new(atomic.Int32)
	var began sync.Map // hold to a channel that is closed when the Break is over
	for _, link := range p.Links {
		link.OnCommand(func(cmd []string) {
			if w.ScriptOf(cmd) != scripts.Release {
				return
			}
			hold, over := testkit.HoldsOf(cmd)[0], make(chan struct{})
			if before, known := began.LoadOrStore(hold, over); known {
				<-before.(chan struct{})
				return
			}
			defer close(over)
			ctx := w.Soon(10 * time.Millisecond)
			if err := operator.Break(ctx, "x", hold, "in between"); !errors.Is(err, rwlock.ErrNotHeld) {
				broken.Add(1)
			}
		})
	}
	return broken
}

func requireOperator(w *world, err error) {
	w.Helper()
	by := testkit.As[*rwlock.BrokenError](w, err, "%v", err)
	require.Equal(w, &rwlock.BrokenError{By: "operator", Why: "in between"}, by)
}

// endsBroken waits until the operator's Break has ended the lease.
func endsBroken(w *world, lease *rwlock.Lease) {
	w.Helper()
	w.UntilOver(lease)
	require.Equal(w, rwlock.ReasonBroken, w.Loss(lease.Err()).Reason)
	requireOperator(w, lease.Err())
}

// untilFree closes the process and waits until its lock is free.
func untilFree(w *world, p *process) {
	w.Helper()
	require.NoError(w, p.Close())
	w.Eventually("free", func() bool { return len(w.Inspect("x").Holders) == 0 })
}

func onOneAndThree(t *testing.T, test func(w *world)) {
	for _, masters := range []int{1, 3} {
		t.Run(fmt.Sprint("masters: ", masters), func(t *testing.T) { inFakeTime(t, masters, test) })
	}
}

// An acquisition that asks again has another hold id. A Break of the former one ends it all the same.
func TestBreakFollowsAnAcquisitionThatAsksAgain(t *testing.T) {
	onOneAndThree(t, func(w *world) {
		opts := []rwlock.LockOption{rwlock.WithTTL(200 * time.Millisecond), rwlock.WithMinHold(time.Hour)}
		for _, take := range []func(*process) (*rwlock.Lease, error){
			func(p *process) (*rwlock.Lease, error) { return p.Lock(w.Ctx, "x", opts...) },
			func(p *process) (*rwlock.Lease, error) { return p.TryLock(w.Ctx, "x", opts...) },
		} {
			p, operator := warm(w), warm(w, rwlock.WithMeta("operator"))
			broken := breakOnRelease(w, p, operator)
			for _, link := range p.Links { // the grant comes too late, and stands until its minimum
				link.DelayNextReply(w.Running(scripts.Acquire), 300*time.Millisecond)
			}
			lease, err := take(p)
			require.EqualValues(w, 1, broken.Load())
			if err == nil {
				endsBroken(w, lease)
			} else {
				require.ErrorIs(w, err, rwlock.ErrNotAcquired)
				requireOperator(w, err)
			}
			untilFree(w, p)
		}
	})
}

// A conversion gives the lease another hold. A Break of the former one, not released yet, ends the lease.
func TestBreakFollowsAConversion(t *testing.T) {
	onOneAndThree(t, func(w *world) {
		operator := warm(w, rwlock.WithMeta("operator"))
		for _, from := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
			p := warm(w)
			lease := p.Take("x", from)
			broken := breakOnRelease(w, p, operator)
			convert := lease.Upgrade
			if from == rwlock.Write {
				convert = lease.Downgrade
			}
			if err := convert(w.Ctx); err != nil {
				requireOperator(w, err)
			}
			require.Positive(w, broken.Load())
			endsBroken(w, lease)
			untilFree(w, p)
		}
	})
}

// A lease that is converted again follows the Break of its first hold too, which a slow master releases last.
func TestBreakFollowsTwoConversions(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, operator := warm(w), warm(w, rwlock.WithMeta("operator"))
		lease := p.Take("x", rwlock.Read)
		w.Pass(100 * time.Millisecond)
		first := w.Inspect("x").Holders[0].Hold
		p.Links[2].DelayDir(testredis.ToServer, 300*time.Millisecond)
		require.NoError(w, lease.Upgrade(w.Ctx))
		require.NoError(w, operator.Break(w.Ctx, "x", first, "in between"))
		require.NoError(w, lease.Downgrade(w.Ctx))
		endsBroken(w, lease)
	})
}

// An adopted lease follows the Break of the detached hold, which one master releases late, or when it is asked again.
func TestBreakFollowsAnAdoption(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		inFakeTime(t, 3, func(w *world) {
			p, q, operator := w.Process(), warm(w), warm(w, rwlock.WithMeta("operator"))
			ticket := detached(w, p, rwlock.Write)
			w.Pass(100 * time.Millisecond)
			if refuses {
				q.Links[2].Deny(func(cmd []string) string {
					if w.ScriptOf(cmd) == scripts.Release {
						return "OOM command not allowed when used memory > 'maxmemory'."
					}
					return ""
				})
			} else {
				q.Links[2].DelayDir(testredis.ToServer, 300*time.Millisecond)
			}
			lease := expect.NoError(q.Adopt(w.Ctx, ticket)).In(w)
			require.NoError(w, operator.Break(w.Ctx, "x", ticket.Hold, "in between"))
			require.NoError(w, lease.Err())
			q.Links[2].Deny(nil)
			endsBroken(w, lease)
		})
	}
}

// A call for several locks does not ask again for one of them that it knows to be broken.
func TestBreakEndsACallForSeveralLocks(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, operator := w.Process(), w.Process(rwlock.WithMeta("operator"))
		held := operator.Take("x", rwlock.Write)
		waiting := p.InTurn(w.Ctx, "x", rwlock.Write) // p listens from now on
		w.UntilWaiting("x", 1)
		for _, link := range p.Links {
			link.DelayNextReply(func(cmd []string) bool {
				return w.ScriptOf(cmd) == scripts.Acquire && strings.Contains(cmd[3], "{b}")
			}, 200*time.Millisecond)
		}
		both := w.Call(w.Ctx, func(ctx context.Context) error {
			leases, err := p.LockAll(ctx, rwlock.Writes("a", "b"))
			if err == nil {
				err = leases.Release(ctx)
			}
			return err
		})
		time.Sleep(100 * time.Millisecond)
		require.NoError(w, operator.Break(w.Ctx, "a", w.Inspect("a").Holders[0].Hold, "in between"))
		requireOperator(w, both.Result())
		w.Eventually("free", func() bool { return len(w.Inspect("b").Holders) == 0 })
		w.Release(held)
		waiting.Granted()
	})
}

// One of three masters stands still. The sections that go on without it leave it nothing to do afterwards.
func TestSectionsBesideAFrozenMasterLeaveItNothing(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessOver(testkit.Net{Way: time.Millisecond, Tuned: true}, rwlock.WithTTL(time.Hour))
		p.WarmUp()
		w.Minis[2].Freeze()
		w.Minis[2].ResetCalls()
		const sections = 500
		for range sections {
			p.Section("x")
		}
		w.Minis[2].Thaw()
		w.Pass(time.Minute)
		require.Empty(w, w.Inspect("x").Masters[2].Holders)
		require.Less(w, w.ScriptCalls()[2], sections/5)
	})
}

package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// breakOnRelease has an operator break each hold that the process releases, before the first release of it gets to a
// master. The hold stands then, and its process has let go of it already.
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
			ctx, cancel := context.WithTimeout(w.Ctx, 10*time.Millisecond)
			defer cancel()
			if err := operator.Break(ctx, "x", hold, "in between"); !errors.Is(err, rwlock.ErrNotHeld) {
				broken.Add(1)
			}
		})
	}
	return broken
}

func requireOperator(w *world, err error) {
	w.Helper()
	var by *rwlock.BrokenError
	require.ErrorAs(w, err, &by, "%v", err)
	require.Equal(w, &rwlock.BrokenError{By: "operator", Why: "in between"}, by)
}

func onOneAndThree(t *testing.T, test func(w *world)) {
	for _, masters := range []int{1, 3} {
		t.Run(fmt.Sprint("masters: ", masters), func(t *testing.T) { inFakeTime(t, masters, test) })
	}
}

// An acquisition that asks again does so under another hold id. A Break of the former one ends it all the same, whether
// it is still asking or has its lease already.
func TestBreakFollowsAnAcquisitionThatAsksAgain(t *testing.T) {
	onOneAndThree(t, func(w *world) {
		opts := []rwlock.LockOption{rwlock.WithTTL(200 * time.Millisecond), rwlock.WithMinHold(time.Hour)}
		for _, take := range []func(*process) (*rwlock.Lease, error){
			func(p *process) (*rwlock.Lease, error) { return p.Lock(w.Ctx, "x", opts...) },
			func(p *process) (*rwlock.Lease, error) { return p.TryLock(w.Ctx, "x", opts...) },
		} {
			p, operator := w.Process(), w.Process(rwlock.WithMeta("operator"))
			p.Section("warm-up")
			operator.Section("warm-up")
			broken := breakOnRelease(w, p, operator)
			for _, link := range p.Links { // the grant comes too late, and stands until its minimum
				link.DelayNextReply(w.Running(scripts.Acquire), 300*time.Millisecond)
			}
			lease, err := take(p)
			require.EqualValues(w, 1, broken.Load())
			if err == nil {
				w.UntilOver(lease)
				err = lease.Err()
				require.Equal(w, rwlock.ReasonBroken, w.Loss(err).Reason)
			} else {
				require.ErrorIs(w, err, rwlock.ErrNotAcquired)
			}
			requireOperator(w, err)
			require.NoError(w, p.Close())
			w.Eventually("free", func() bool { return len(w.Inspect("x").Holders) == 0 })
		}
	})
}

// A conversion gives the lease another hold. A Break of the former one, which its process has not released there, ends
// the lease.
func TestBreakFollowsAConversion(t *testing.T) {
	onOneAndThree(t, func(w *world) {
		operator := w.Process(rwlock.WithMeta("operator"))
		operator.Section("warm-up")
		for _, from := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
			p := w.Process()
			p.Section("warm-up")
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
			w.UntilOver(lease)
			require.Equal(w, rwlock.ReasonBroken, w.Loss(lease.Err()).Reason)
			requireOperator(w, lease.Err())
			require.NoError(w, p.Close())
			w.Eventually("free", func() bool { return len(w.Inspect("x").Holders) == 0 })
		}
	})
}

// A lease that is converted again follows the Break of its first hold too, which a slow master releases last.
func TestBreakFollowsTwoConversions(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, operator := w.Process(), w.Process(rwlock.WithMeta("operator"))
		p.Section("warm-up")
		operator.Section("warm-up")
		lease := p.Take("x", rwlock.Read)
		w.Pass(100 * time.Millisecond)
		first := w.Inspect("x").Holders[0].Hold
		p.Links[2].DelayDir(testredis.ToServer, 300*time.Millisecond)
		require.NoError(w, lease.Upgrade(w.Ctx))
		require.NoError(w, operator.Break(w.Ctx, "x", first, "in between"))
		require.NoError(w, lease.Downgrade(w.Ctx))
		w.UntilOver(lease)
		require.Equal(w, rwlock.ReasonBroken, w.Loss(lease.Err()).Reason)
		requireOperator(w, lease.Err())
	})
}

// An adopted lease follows the Break of the detached hold, which one master releases late, or when it is asked again.
func TestBreakFollowsAnAdoption(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		inFakeTime(t, 3, func(w *world) {
			p, q, operator := w.Process(), w.Process(), w.Process(rwlock.WithMeta("operator"))
			q.Section("warm-up")
			operator.Section("warm-up")
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
			lease, err := q.Adopt(w.Ctx, ticket)
			require.NoError(w, err)
			require.NoError(w, operator.Break(w.Ctx, "x", ticket.Hold, "in between"))
			require.NoError(w, lease.Err())
			q.Links[2].Deny(nil)
			w.UntilOver(lease)
			require.Equal(w, rwlock.ReasonBroken, w.Loss(lease.Err()).Reason)
			requireOperator(w, lease.Err())
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

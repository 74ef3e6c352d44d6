package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// breakUntilGone repeats a Break until the hold is gone, as an operator does while servers change.
func breakUntilGone(w *world, op *process, name, hold string, opts ...rwlock.BreakOption) {
	w.Helper()
	w.Eventually("the hold is gone", func() bool {
		ctx, cancel := context.WithTimeout(w.Ctx, testkit.Patience)
		defer cancel()
		err := op.Break(ctx, name, hold, "again", opts...)
		if !errors.Is(err, rwlock.ErrNoQuorum) && !errors.Is(err, rwlock.ErrNotHeld) {
			require.NoError(w, err)
		}
		return errors.Is(err, rwlock.ErrNotHeld)
	})
}

// A failover loses that a hold was broken, since no replica had that. The hold stands as before, alone, until it is
// broken again.
func TestABreakThatAFailoverLoses(t *testing.T) {
	testredis.NeedAll(t, "failovers take many seconds, and run none of this module's code that other tests do not")
	t.Parallel() // servers start and are waited for
	testredis.Require(t)
	for name, opts := range map[string][]rwlock.Option{"no replicas": nil, "replicas": {withAReplica}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testredis.StartSentinel(t, redisBinary(t))
			w := testkit.OnGroup(t, s)
			w.TTL, w.Opts = unhurried(30*time.Second), opts
			holder, op, other := w.Process(), operator(w), w.Process()
			lease := holder.Take("n", rwlock.Write)
			hold := w.Inspect("n").Holders[0].Hold
			old := s.Master()
			require.EqualValues(t, len(s.Nodes())-1, w.On(old, "WAIT", "2", "10000"))
			holder.CutOff(0) // or it would hear of the Break at once
			cutOff(t, old, s.Nodes()[1:]...)
			ctx, cancel := context.WithTimeout(w.Ctx, time.Second)
			defer cancel()
			require.ErrorIs(t, op.Break(ctx, "n", hold, "first"), context.DeadlineExceeded)
			require.True(t, w.Inspect("n").Holders[0].Broken)

			for _, sentinel := range s.Sentinels() { // a failover that fails on a busy machine is soon tried again
				commandOn(t, sentinel, "SENTINEL", "SET", testredis.MasterSet, "FAILOVER-TIMEOUT", "2000")
			}
			s.DownAfter(time.Second)
			old.Kill()
			s.AwaitMaster(old)
			var state rwlock.State
			w.Eventually("the new master answers", func() (ok bool) {
				var err error
				state, err = op.Inspect(w.Ctx, "n")
				return err == nil
			})
			require.Equal(t, hold, state.Holders[0].Hold)
			require.False(t, state.Holders[0].Broken)
			require.NoError(t, lease.Err())
			_, err := other.TryLock(w.Ctx, "n")
			require.Error(t, err)
			holder.Restore(0)
			breakUntilGone(w, op, "n", hold)
			w.UntilOver(lease)
			requireBroken(w, lease.Err(), "again")
		})
	}
}

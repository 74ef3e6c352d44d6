package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A renewal that is not confirmed comes as a *QuorumError that names the lock and the server. The lease stands.
func TestARenewalThatIsNotConfirmedIsAQuorumError(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		lease := p.lock("n", rwlock.Write)
		p.link.Hold(testredis.Both)
		err := lease.Renew(w.ctx)
		require.ErrorIs(w.t, err, rwlock.ErrNoQuorum)
		var failed *rwlock.QuorumError
		require.ErrorAs(w.t, err, &failed)
		require.Equal(w.t, []any{"n", 1, 0}, []any{failed.Name, failed.Need, failed.Got})
		require.Len(w.t, failed.Nodes, 1)
		require.Equal(w.t, "mini:6379", failed.Nodes[0].Addr)
		require.ErrorAs(w.t, err, new(*rwlock.NoReplyError))
		require.ErrorContains(w.t, err, `lock "n": no usable answer from Redis; mini:6379: no reply in 1s; renewal`)
		require.True(w.t, rwlock.Indeterminate(err))
		require.NoError(w.t, lease.Err())
		p.link.Restore()
	})
}

// A renewal that is asked for while the answer of the round before is on its way is sent when that has come.
func TestARenewalBehindALateAnswerIsConfirmed(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		lease := p.lock("n", rwlock.Write)
		require.NoError(w.t, lease.Renew(w.ctx)) // the script is known
		p.link.DelayDir(testredis.ToClient, 1500*time.Millisecond)
		require.ErrorIs(w.t, lease.Renew(w.ctx), rwlock.ErrNoQuorum, "after a second")
		p.link.DelayDir(testredis.ToClient, 0)
		w.pass(200 * time.Millisecond)
		require.NoError(w.t, lease.Renew(w.ctx))
		require.InDelta(w.t, w.ttl.Seconds(), time.Until(lease.Deadline()).Seconds(), 0.2)
	})
}

// The end of the caller's context is told as that, with the lock, and nothing is sent for one that has ended before.
func TestARenewalThatIsNotWaitedForNamesTheLock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		lease := p.lock("n", rwlock.Write)
		p.link.ResetCalls()
		ctx, cancel := context.WithCancelCause(w.ctx)
		cancel(errShutdown)
		for _, end := range []error{context.Canceled, errShutdown} {
			require.ErrorIs(w.t, lease.Renew(ctx), end)
		}
		require.EqualError(w.t, lease.Renew(ctx), `rwlock: lock "n": renewal not confirmed: shutting down`)
		w.settle()
		require.Empty(w.t, p.link.AllCalls())

		p.link.Hold(testredis.Both)
		brief, stop := context.WithTimeout(w.ctx, 100*time.Millisecond)
		defer stop()
		err := lease.Renew(brief)
		require.ErrorIs(w.t, err, context.DeadlineExceeded)
		require.NotErrorIs(w.t, err, rwlock.ErrNoQuorum)
		require.ErrorContains(w.t, err, `lock "n"`)
		p.link.Restore()
	})
}

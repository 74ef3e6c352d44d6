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
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		p.Link.Hold(testredis.Both)
		err := lease.Renew(w.Ctx)
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		var failed *rwlock.QuorumError
		require.ErrorAs(w, err, &failed)
		require.Equal(w, []any{"n", 1, 0}, []any{failed.Name, failed.Need, failed.Got})
		require.Len(w, failed.Nodes, 1)
		require.Equal(w, "mini:6379", failed.Nodes[0].Addr)
		require.ErrorAs(w, err, new(*rwlock.NoReplyError))
		require.ErrorContains(w, err, `lock "n": no usable answer from Redis; mini:6379: no reply in 1s; renewal`)
		require.True(w, rwlock.Indeterminate(err))
		require.NoError(w, lease.Err())
		p.Link.Restore()
	})
}

// A renewal that is asked for while the answer of the round before is on its way is sent when that has come.
func TestARenewalBehindALateAnswerIsConfirmed(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		require.NoError(w, lease.Renew(w.Ctx)) // the script is known
		p.Link.DelayDir(testredis.ToClient, 1500*time.Millisecond)
		require.ErrorIs(w, lease.Renew(w.Ctx), rwlock.ErrNoQuorum, "after a second")
		p.Link.DelayDir(testredis.ToClient, 0)
		w.Pass(200 * time.Millisecond)
		require.NoError(w, lease.Renew(w.Ctx))
		require.InDelta(w, w.TTL.Seconds(), time.Until(lease.Deadline()).Seconds(), 0.2)
	})
}

// The end of the caller's context is told as that, with the lock, and nothing is sent for one that has ended before.
func TestARenewalThatIsNotWaitedForNamesTheLock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		p.Link.ResetCalls()
		ctx, cancel := context.WithCancelCause(w.Ctx)
		cancel(errShutdown)
		for _, end := range []error{context.Canceled, errShutdown} {
			require.ErrorIs(w, lease.Renew(ctx), end)
		}
		require.EqualError(w, lease.Renew(ctx), `rwlock: lock "n": renewal not confirmed: shutting down`)
		w.Settle()
		require.Empty(w, p.Link.AllCalls())

		p.Link.Hold(testredis.Both)
		brief, stop := context.WithTimeout(w.Ctx, 100*time.Millisecond)
		defer stop()
		err := lease.Renew(brief)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NotErrorIs(w, err, rwlock.ErrNoQuorum)
		require.ErrorContains(w, err, `lock "n"`)
		p.Link.Restore()
	})
}

package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A renewal sets the expiry that it was asked for. What a server's clock was set back by must not be left on top of it
// when the holder crashes.

func TestServerClockSetBackBlocksNobody(t *testing.T) {
	for _, back := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			t.Run(mode.String()+" lock, set back by "+back.String(), func(t *testing.T) {
				inFakeTime(t, func(w *world) {
					w.TTL = 2 * time.Second
					w.Mini.Skew(0)
					p, q := w.Process(), w.Process()
					lease := p.Take("n", mode)
					w.Mini.Skew(-back)
					w.Pass(2 * w.TTL)
					require.NoError(w, lease.Err(), "renewed as ever")
					require.LessOrEqual(w, w.Inspect("n").Holders[0].Remaining, w.TTL)
					p.Die()
					died := time.Now()
					next := q.Acquire(w.Ctx, "n", rwlock.Write)
					w.Release(next.Granted())
					require.LessOrEqual(w, next.At.Sub(died), 2*w.TTL, "a crashed holder is in the way for its TTL")
				})
			})
		}
	}
}

// What a server noted before its clock was set back has been for no time since, not for a negative one.
func TestNoTimeIsNegativeAfterTheServerClockWasSetBack(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.Mini.Skew(0)
		p, q := w.Process(), w.Process()
		lease := p.Take("n", rwlock.Write)
		waiting := q.Queue("n", rwlock.Write)
		w.Mini.Skew(-time.Minute)
		s := w.Inspect("n")
		require.Len(w, s.Holders, 1)
		require.Len(w, s.Waiters, 1)
		require.GreaterOrEqual(w, s.Holders[0].Held, time.Duration(0))
		require.GreaterOrEqual(w, s.Waiters[0].Waited, time.Duration(0))
		_, err := w.Process().TryLock(w.Ctx, "n")
		var refused *rwlock.AcquireError
		require.ErrorAs(w, err, &refused)
		require.GreaterOrEqual(w, refused.Holder.Held, time.Duration(0))
		w.Release(lease)
		w.Release(waiting.Granted())
	})
}

func TestServerClockSetBackOnARealServer(t *testing.T) {
	t.Parallel()
	server := testredis.StartSkewed(t)
	w := testkit.OnServers(t, server.Server)
	w.TTL = 5 * time.Second
	w.Observer()
	p, q := w.Process(), w.Process()
	lease := p.Take("n", rwlock.Write)
	server.Skew(-time.Hour)
	renewed := p.Stats().Renewed
	w.Eventually("the lease is renewed under the new clock", func() bool {
		require.NoError(t, lease.Err())
		return p.Stats().Renewed > renewed+2
	})
	require.LessOrEqual(t, w.Inspect("n").Holders[0].Remaining, w.TTL)
	p.Die()
	w.Release(q.Acquire(w.Ctx, "n", rwlock.Write).Granted())
}

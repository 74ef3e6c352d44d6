package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
					w.ttl = 2 * time.Second
					w.mini.Skew(0)
					p, q := w.process(), w.process()
					lease := p.lock("n", mode)
					w.mini.Skew(-back)
					w.pass(2 * w.ttl)
					require.NoError(w.t, lease.Err(), "renewed as ever")
					require.LessOrEqual(w.t, w.inspect("n").Holders[0].Remaining, w.ttl)
					p.die()
					died := time.Now()
					next := q.acquire(w.ctx, "n", rwlock.Write)
					w.release(next.granted())
					require.LessOrEqual(w.t, next.at.Sub(died), 2*w.ttl, "a crashed holder is in the way for its TTL")
				})
			})
		}
	}
}

// What a server noted before its clock was set back has been for no time since, not for a negative one.
func TestNoTimeIsNegativeAfterTheServerClockWasSetBack(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.mini.Skew(0)
		p, q := w.process(), w.process()
		lease := p.lock("n", rwlock.Write)
		waiting := q.queue("n", rwlock.Write)
		w.mini.Skew(-time.Minute)
		s := w.inspect("n")
		require.Len(w.t, s.Holders, 1)
		require.Len(w.t, s.Waiters, 1)
		require.GreaterOrEqual(w.t, s.Holders[0].Held, time.Duration(0))
		require.GreaterOrEqual(w.t, s.Waiters[0].Waited, time.Duration(0))
		_, err := w.process().TryLock(w.ctx, "n")
		var refused *rwlock.AcquireError
		require.ErrorAs(w.t, err, &refused)
		require.GreaterOrEqual(w.t, refused.Holder.Held, time.Duration(0))
		w.release(lease)
		w.release(waiting.granted())
	})
}

func TestServerClockSetBackOnARealServer(t *testing.T) {
	t.Parallel()
	server := testredis.StartSkewed(t)
	w := &world{backend: backend{t: t, ctx: t.Context(), server: server.Server}, ttl: 5 * time.Second}
	w.observer = w.process()
	p, q := w.process(), w.process()
	lease := p.lock("n", rwlock.Write)
	server.Skew(-time.Hour)
	renewed := p.Stats().Renewed
	w.eventually("the lease is renewed under the new clock", func() bool {
		require.NoError(t, lease.Err())
		return p.Stats().Renewed > renewed+2
	})
	require.LessOrEqual(t, w.inspect("n").Holders[0].Remaining, w.ttl)
	p.die()
	w.release(q.acquire(w.ctx, "n", rwlock.Write).granted())
}

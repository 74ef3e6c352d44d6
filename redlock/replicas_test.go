package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Each master's vote counts only with its own replica: a quorum may do without one of them, and not without two.
func TestVoteCountsWithItsReplicas(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	w := testkit.Start(t, 3)
	var replicas []*testredis.Server
	for _, master := range w.Servers {
		replica := testredis.Start(t)
		replica.ReplicaOf(master)
		replicas = append(replicas, replica)
	}
	opts := []rwlock.Option{rwlock.WithTTL(15 * time.Second), rwlock.WithReplicas(1, 3*time.Second)}
	for name, p := range map[string]*process{"tuned": w.ProcessOver(tuned, opts...), "plain": w.Process(opts...)} {
		t.Run(name, func(t *testing.T) {
			onQuorum(w, p)
			replicas[0].Freeze()
			onQuorum(w, p, replicas[1], replicas[2])

			held := p.Acquire(w.Soon(time.Minute), "n", rwlock.Write).Granted()
			waiting := p.InTurn(w.Soon(time.Minute), "n", rwlock.Write)
			w.UntilWaiting("n", 1)
			require.NoError(t, held.Renew(w.Ctx), "by two masters with their replicas")
			require.NoError(t, held.Release(w.Ctx))
			waiting.Granted() // handed off by two masters with their replicas

			replicas[1].Freeze()
			_, err := p.TryLock(w.Soon(time.Minute), "n")
			require.ErrorIs(t, err, rwlock.ErrReplicas)
			replicas[0].Thaw()
			replicas[1].Thaw()
			onQuorum(w, p)
		})
	}
}

// onQuorum takes the lock and gives it back, and fails the test if these replicas do not have it in between.
func onQuorum(w *world, p *process, replicas ...*testredis.Server) {
	w.Helper()
	lease := p.Acquire(w.Soon(time.Minute), "n", rwlock.Write).Granted()
	for _, replica := range replicas {
		record := w.On(replica, "HGET", "fencelock:{n}", "w")
		require.Contains(w, record, lease.Owner())
	}
	require.NoError(w, lease.Release(w.Ctx))
}

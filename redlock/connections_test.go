package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// handOver renews a lock that it holds in the first process, while the second waits for it.
func handOver(w *world, first, second *process) {
	held := first.Take("orders", rwlock.Write)
	require.NoError(w, held.Renew(w.Ctx))
	waiting := second.InTurn(w.Ctx, "orders", rwlock.Read)
	w.UntilWaiting("orders", 1)
	w.Release(held)
	waiting.Granted()
}

// The user of SECURITY.md for a master of a quorum may do all that a lock needs: no command, key or channel is refused,
// neither of clients that are tuned for locks nor of others.
func TestACLOfAQuorumSuffices(t *testing.T) {
	line := testkit.ACLLine(t, "..", testkit.ACLEachServer)
	w := testkit.Start(t, 3)
	for _, server := range w.Servers {
		w.On(server, line...)
	}
	w.Net.Change = func(o *rueidis.ClientOption) { o.Username, o.Password = "locks", "secret" }
	own := w.Process()
	w.Net.Tuned = true
	tuned := w.Process()
	for _, pair := range [][2]*process{{tuned, own}, {own, tuned}} {
		handOver(w, pair[0], pair[1])
	}
	for _, server := range w.Servers {
		require.Empty(w, w.On(server, "ACL", "LOG"))
	}
}

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
			for i, replica := range replicas[:2] {
				replica.Thaw()
				w.Servers[i].UntilConfirmed()
			}
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

package rwlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A slot that has moved to another node is followed there by everybody, also by those who hold its lock.
func TestALockFollowsItsSlot(t *testing.T) {
	t.Parallel() // a new cluster takes its time
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	w := testkit.OnGroup(t, cluster)
	w.TTL = 5 * time.Second
	p, q := w.Process(), w.Process()
	slot := cluster.Slot("fencelock:{n}")
	for range 2 {
		held, waiting := p.Take("n", rwlock.Write), q.Acquire(w.Ctx, "n", rwlock.Read)
		before := p.Stats().Renewed
		cluster.BeginMove(slot, cluster.Another(cluster.Owner(slot))).End()
		w.Eventually("it is renewed there", func() bool { return p.Stats().Renewed >= before+3 })
		require.True(t, waiting.IsWaiting())
		require.NoError(t, held.Err())
		w.Release(held)
		w.Release(waiting.Granted())
		slot = cluster.Slot("fencelock:{n}")
	}
}

// While a master is dead and has no replica nobody serves its slots: an attempt says so at once, and Lock goes on
// asking until somebody does.
func TestAClusterThatIsDown(t *testing.T) {
	t.Parallel() // it waits for the cluster to notice
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	cluster.NodeTimeout(300 * time.Millisecond)
	w := testkit.OnGroup(t, cluster)
	w.TTL = 5 * time.Second
	p := w.Process()
	p.WarmUp()
	sick := cluster.Owner(cluster.Slot("fencelock:{n}"))
	witness := cluster.Another(sick)
	sick.Kill()
	w.Eventually("the others notice", func() bool {
		_, err := witness.Command("GET", "fencelock:{warm up}")
		return err != nil && strings.HasPrefix(err.Error(), "CLUSTER")
	})
	names := []string{"n", "a", "b", "c", "d", "e"} // on all masters: without full coverage none serves
	for _, name := range names {
		ctx, cancel := context.WithTimeout(w.Ctx, testkit.Patience)
		_, err := p.TryLock(ctx, name)
		require.ErrorIs(t, err, rwlock.ErrNoQuorum, name)
		require.NoError(t, ctx.Err(), "an attempt waited")
		cancel()
	}
	waiting := p.Acquire(w.Ctx, "n", rwlock.Write)
	require.True(t, waiting.IsWaiting())
	sick.Restart()
	w.Release(waiting.Granted())
}

// In a Cluster an error names the node that has refused, and not all that there are.
func TestErrorsNameTheNodeOfTheLock(t *testing.T) {
	t.Parallel() // a new cluster takes its time
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	w := testkit.OnGroup(t, cluster)
	w.TTL = 5 * time.Second
	p := w.Process()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		node := cluster.Owner(cluster.Slot("fencelock:{" + name + "}"))
		w.Eventually("the client knows the nodes", func() bool {
			s, err := p.Inspect(w.Ctx, name)
			return err == nil && s.Masters[0].Addr == node.Addr()
		})
		commandOn(t, node, "CONFIG", "SET", "maxmemory", "1")
		_, err := p.TryLock(w.Ctx, name)
		commandOn(t, node, "CONFIG", "SET", "maxmemory", "0")
		var failed *rwlock.QuorumError
		require.ErrorAs(t, err, &failed)
		require.Len(t, failed.Nodes, 1)
		require.Equal(t, node.Addr(), failed.Nodes[0].Addr)
		require.ErrorContains(t, err, "OOM")
	}
}

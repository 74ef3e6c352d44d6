package rwlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// In a Cluster a grant counts with the replica of the shard that it is in, and with no other.
func TestReplicasOfAShardConfirmItsLocks(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	testredis.Require(t)
	c := testredis.StartCluster(t, redisBinary(t), 1)
	l := replicatedIn(t, c.Option(), 1)
	frozen := c.Owner(c.Slot("fencelock:{a}"))
	replica := c.ReplicaOf(frozen)
	for i := range 10 {
		lockedOnReplica(t, c, l, string(rune('a'+i)))
	}
	replica.Freeze()
	defer replica.Thaw()
	for i := range 10 {
		name := string(rune('a' + i))
		if c.Owner(c.Slot("fencelock:{"+name+"}")) != frozen {
			lockedOnReplica(t, c, l, name)
			continue
		}
		_, err := l.TryLock(t.Context(), name)
		require.ErrorIs(t, err, rwlock.ErrReplicas)
	}
}

// replicatedIn returns a locker with a TTL that is longer than any failover takes. It is closed when the test ends.
func replicatedIn(t *testing.T, option rueidis.ClientOption, n int) *rwlock.Locker {
	client, err := rwlock.Dial("", option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	replicas := rwlock.WithReplicas(n, replicaTimeout)
	l := testkit.New(t, client, rwlock.WithTTL(2*time.Minute), replicas, testredis.Patience())
	return l
}

// lockedOnReplica takes the lock and fails the test if its replica does not have it by then.
func lockedOnReplica(t *testing.T, c *testredis.Cluster, l *rwlock.Locker, name string) {
	lease, err := l.Lock(t.Context(), name)
	require.NoError(t, err)
	key := "fencelock:{" + name + "}"
	replica := c.ReplicaOf(c.Owner(c.Slot(key)))
	_, err = replica.Command("READONLY")
	require.NoError(t, err)
	record, err := replica.Command("HGET", key, "w")
	require.NoError(t, err)
	require.Contains(t, record, lease.Owner())
	require.NoError(t, lease.Release(t.Context()))
}

// cutOff ends the replication to these servers for good: they keep what they have, and are not let in again.
func cutOff(t *testing.T, master *testredis.Server, replicas ...*testredis.Server) {
	for _, replica := range replicas {
		commandOn(t, replica, "CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong")
	}
	commandOn(t, master, "CLIENT", "KILL", "TYPE", "replica")
	require.Eventually(t, func() bool {
		return master.Info("replication")["connected_slaves"] == "0"
	}, testkit.Patience, time.Millisecond)
}

// A master dies whose replicas lag behind. One of them takes its place and knows nothing of the last grant, so that the
// lock has two holders. Who asks for a replica is refused the grant instead.
func TestReplicasThatLagBehindAFailover(t *testing.T) {
	t.Parallel() // servers start and are waited for
	testredis.Require(t)
	for n, want := range map[int]error{0: nil, 1: rwlock.ErrReplicas} {
		t.Run(fmt.Sprint(n, " replicas asked for"), func(t *testing.T) {
			t.Parallel()
			s := testredis.StartSentinel(t, redisBinary(t))
			first, second := replicatedIn(t, s.Option(), n), replicatedIn(t, s.Option(), 0)
			warm, err := first.Lock(t.Context(), "warm")
			require.NoError(t, err)
			require.NoError(t, warm.Release(t.Context()))

			old := s.Master()
			cutOff(t, old, s.Nodes()[1:]...)
			lease, err := first.TryLock(t.Context(), "n")
			require.ErrorIs(t, err, want)
			for _, sentinel := range s.Sentinels() { // a failover that fails on a busy machine is soon tried again
				commandOn(t, sentinel, "SENTINEL", "SET", testredis.MasterSet, "FAILOVER-TIMEOUT", "2000")
			}
			s.DownAfter(time.Second)
			old.Kill()
			s.AwaitMaster(old)
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			other, err := second.Lock(ctx, "n")
			require.NoError(t, err)
			if lease != nil {
				require.NoError(t, lease.Err(), "two holders: what a failover does without replicas")
			}
			require.NoError(t, other.Release(ctx))
		})
	}
}

package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// What counts only with replicas: a master that has one, which may be frozen.

const (
	replicaTTL     = 10 * time.Second
	replicaTimeout = 3 * time.Second        // in which a replica confirms, on a busy machine too
	frozenTimeout  = 300 * time.Millisecond // for one that never does
)

func withReplica(t *testing.T) (master, replica *testredis.Server) {
	testredis.Require(t)
	master, replica = testredis.Start(t), testredis.Start(t)
	replica.ReplicaOf(master)
	return master, replica
}

// replicated returns a locker whose grants count with n replicas. It is closed when the test ends.
func replicated(t *testing.T, addr string, n int, opts ...rwlock.Option) *rwlock.Locker {
	client, err := rwlock.Dial(addr, rueidis.ClientOption{})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	all := append([]rwlock.Option{rwlock.WithTTL(replicaTTL), rwlock.WithReplicas(n, replicaTimeout)}, opts...)
	all = append(all, testredis.Patience())
	l := testkit.New(t, client, all...)
	return l
}

// holders returns how many hold the lock, as the server shows it.
func holders(t *testing.T, l *rwlock.Locker, name string) int {
	state, err := l.Inspect(t.Context(), name)
	require.NoError(t, err)
	return len(state.Holders)
}

func TestTooFewReplicasRefuseAGrant(t *testing.T) {
	master, replica := withReplica(t)
	replica.Freeze()
	defer replica.Thaw()
	for need, got := range map[int]int{1: 0, 2: 0} {
		l := replicated(t, master.Addr(), need, rwlock.WithReplicas(need, frozenTimeout))
		for how, take := range acquisitions(l) {
			_, err := take(t.Context(), "n")
			require.ErrorIs(t, err, rwlock.ErrReplicas, how)
			require.NotErrorIs(t, err, rwlock.ErrNoQuorum)
			require.NotErrorIs(t, err, rwlock.ErrNotAcquired)
			require.ErrorContains(t, err, `lock "n": too few replicas`)
			var short *rwlock.ReplicasError
			require.ErrorAs(t, err, &short)
			require.Equal(t, rwlock.ReplicasError{Need: need, Got: got, After: frozenTimeout}, *short)
			require.Eventually(t, func() bool { return holders(t, l, "n") == 0 },
				testkit.Patience, time.Millisecond, "rolled back")
		}
		require.NoError(t, l.Close())
	}
}

// A waiter that is handed the lock does not take it before the replica knows of it.
func TestAHandOffCountsOnceTheReplicaHasIt(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	master, replica := withReplica(t)
	first, second := replicated(t, master.Addr(), 1), replicated(t, master.Addr(), 1)
	for _, frozen := range []bool{false, true} {
		held, err := first.Lock(t.Context(), "n")
		require.NoError(t, err)
		waiting := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		var owner string
		var record any // as the replica has it
		go func() {
			lease, err := second.Lock(ctx, "n")
			if err == nil {
				owner = lease.Owner()
				record, err = replica.Command("HGET", "fencelock:{n}", "w")
				err = errors.Join(err, lease.Release(ctx))
			}
			waiting <- err
		}()
		require.Eventually(t, func() bool {
			state, err := first.Inspect(t.Context(), "n")
			return err == nil && len(state.Waiters) == 1
		}, testkit.Patience, time.Millisecond)
		if frozen {
			replica.Freeze()
		}
		require.NoError(t, held.Release(t.Context()))
		if err := <-waiting; frozen {
			require.ErrorIs(t, err, rwlock.ErrReplicas)
		} else {
			require.NoError(t, err)
			require.Contains(t, record, owner)
		}
		cancel()
	}
	replica.Thaw()
	require.Eventually(t, func() bool { return holders(t, first, "n") == 0 },
		testkit.Patience, time.Millisecond, "rolled back")
}

// The deadline does not move past the expiry that the replica knows.
func TestARenewalCountsOnceTheReplicaHasIt(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	master, replica := withReplica(t)
	l := replicated(t, master.Addr(), 1)
	lease, err := l.Lock(t.Context(), "n")
	require.NoError(t, err)
	before := lease.Deadline()
	require.NoError(t, lease.Renew(t.Context()))
	require.Greater(t, lease.Deadline(), before)

	replica.Freeze()
	defer replica.Thaw()
	err = lease.Renew(t.Context())
	require.ErrorIs(t, err, rwlock.ErrReplicas)
	require.NotErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, err, `lock "n": too few replicas confirmed it`)
	require.ErrorAs(t, err, new(*rwlock.ReplicasError))
	require.False(t, rwlock.Indeterminate(err), "the master has renewed it")
	select {
	case <-lease.Done():
	case <-time.After(testkit.Patience):
		require.Fail(t, "it goes on without its replica")
	}
	require.ErrorIs(t, lease.Err(), rwlock.ErrLost)
	require.ErrorIs(t, lease.Err(), rwlock.ErrReplicas)
}

// What needs no replica does not wait for one: neither a queue, nor a release.
func TestWithoutReplicasNobodyWaitsForThem(t *testing.T) {
	master, replica := withReplica(t)
	plain := replicated(t, master.Addr(), 0)
	replica.Freeze()
	defer replica.Thaw()
	lease, err := plain.Lock(t.Context(), "n")
	require.NoError(t, err)
	l := replicated(t, master.Addr(), 1)
	_, err = l.TryLock(t.Context(), "n")
	require.ErrorIs(t, err, rwlock.ErrNotAcquired, "a refusal needs no replica")
	require.NoError(t, lease.Release(t.Context()))
}

// The answer to a grant is lost, and the next request finds the grant and writes nothing, over another connection: WAIT
// behind it says nothing of the replica.
func TestAGrantThatIsFoundAgainIsConfirmed(t *testing.T) {
	t.Parallel() // servers start and are waited for
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		for _, frozen := range []bool{false, true} {
			t.Run(fmt.Sprint(filepath.Base(binary), ", frozen ", frozen), func(t *testing.T) {
				master, replica := testredis.StartBinary(t, binary), testredis.StartBinary(t, binary)
				replica.ReplicaOf(master)
				proxy := testredis.NewProxy(t, master.Addr())
				l := replicated(t, proxy.Addr(), 1, rwlock.WithTTL(20*time.Second))
				warm, err := l.Lock(t.Context(), "warm")
				require.NoError(t, err)
				require.NoError(t, warm.Release(t.Context()))
				if frozen {
					replica.Freeze()
					defer replica.Thaw()
				}
				lost := proxy.DropNextReply(testredis.Named("EVALSHA"))
				ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
				defer cancel()
				lease, err := l.Lock(ctx, "n")
				<-lost
				if frozen {
					require.ErrorIs(t, err, rwlock.ErrReplicas)
					return
				}
				require.NoError(t, err)
				record, err := replica.Command("HGET", "fencelock:{n}", "w")
				require.NoError(t, err)
				require.Contains(t, record, lease.Owner())
			})
		}
	}
}

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

package rwlock_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// unlogged keeps out of the log what a failover has to say.
var unlogged = rwlock.WithLogger(slog.New(slog.DiscardHandler))

// moving is one address of a master and its replica. move promotes the replica, and new connections lead to it. Those
// that stand stay with the former master, which is its replica by then.
type moving struct {
	addr string
	now  *testredis.Server
	move func(t *testing.T)
}

func movingBehindProxy(t *testing.T) *moving {
	first, second := pairOf(t)
	proxy := testredis.NewProxy(t, first.Addr())
	m := &moving{addr: proxy.Addr(), now: second}
	m.move = func(t *testing.T) {
		promote(t, second)
		proxy.LeadTo(second.Addr())
		first.ReplicaOf(second)
	}
	return m
}

func movingBehindHAProxy(t *testing.T) *moving {
	first, second := pairOf(t)
	m := &moving{addr: testredis.StartHAProxy(t, first, second), now: second}
	m.move = func(t *testing.T) {
		promote(t, second)
		first.ReplicaOf(second)
		testredis.AwaitMaster(t, m.addr, 2)
	}
	return m
}

func pairOf(t *testing.T) (master, replica *testredis.Server) {
	testredis.Require(t)
	master, replica = testredis.Start(t), testredis.Start(t)
	replica.ReplicaOf(master)
	return master, replica
}

func promote(t *testing.T, replica *testredis.Server) {
	expect.NoError(replica.Command("REPLICAOF", "NO", "ONE")).In(t)
}

// A service of Kubernetes and a proxy lead to whichever server is the master. After a failover the connections that
// stand lead to a replica, and neither side closes them.
func TestOneAddressThatLeadsToAnotherServer(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *moving{
		"behind a proxy": movingBehindProxy, "behind HAProxy": movingBehindHAProxy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t)
			ctx := t.Context()
			locker := expect.NoError(rwlock.Open(m.addr, unlogged)).In(t)
			t.Cleanup(func() { require.NoError(t, locker.Close()) })
			client := expect.NoError(rwlock.Dial(m.addr, rueidis.ClientOption{})).In(t)
			t.Cleanup(client.Close)
			guard := expect.NoError(redisguard.New(client)).In(t)
			fence := fencing.Fence{Resource: "r", Token: 5, Mode: fencing.Write}
			require.NoError(t, guard.Set(ctx, fence, "data:{r}", "before", 0))
			waitOnce(t, m.addr, locker, "before")

			m.move(t)

			lease := expect.NoError(locker.Lock(ctx, "after")).In(t, "it asks again")
			require.NoError(t, lease.Release(ctx))
			require.NoError(t, locker.Ping(ctx))
			for guard.Set(ctx, fence, "data:{r}", "after", 0) != nil { // the first attempt meets the replica
				require.NoError(t, ctx.Err())
			}
			require.Equal(t, "after", expect.NoError(m.now.Command("GET", "data:{r}")).In(t))
			waitOnce(t, m.addr, locker, "after")
			require.Eventually(t, func() bool {
				reply := expect.NoError(m.now.Command("PUBSUB", "CHANNELS", "fencelock:c:*")).In(t)
				return len(reply.([]any)) > 0
			}, time.Minute, time.Millisecond, "messages come from the new master")
		})
	}
}

// waitOnce has a locker wait for another one, so that it listens.
func waitOnce(t *testing.T, addr string, locker *rwlock.Locker, name string) {
	t.Helper()
	other := expect.NoError(rwlock.Open(addr, unlogged)).In(t)
	defer func() { require.NoError(t, other.Close()) }()
	held := expect.NoError(other.Lock(t.Context(), name)).In(t)
	got := make(chan *rwlock.Lease)
	go func() {
		lease, _ := locker.Lock(t.Context(), name)
		got <- lease
	}()
	require.Eventually(t, func() bool {
		return len(expect.NoError(other.Inspect(t.Context(), name)).In(t).Waiters) > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, held.Release(t.Context()))
	lease := <-got
	require.NotNil(t, lease)
	require.NoError(t, lease.Release(t.Context()))
}

// Two of three masters are replicas until the quorum asks again at their addresses. They abstain for the quarantine.
func TestMastersWhoseAddressesLeadToOtherServers(t *testing.T) {
	t.Parallel() // it waits for two quarantines
	moved := []*moving{movingBehindProxy(t), movingBehindProxy(t)}
	addrs := []string{moved[0].addr, moved[1].addr, testredis.Start(t).Addr()}
	locker := expect.NoError(redlock.Open(addrs, unlogged, rwlock.WithTTL(2*time.Second))).In(t)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	lease := expect.NoError(locker.Lock(t.Context(), "before")).In(t)
	require.NoError(t, lease.Release(t.Context()))
	for _, m := range moved {
		m.move(t)
	}
	lease = expect.NoError(locker.Lock(t.Context(), "after")).In(t)
	require.NoError(t, lease.Release(t.Context()))
}

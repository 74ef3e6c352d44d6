package rwlock_test

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F23: all keys of a lock have one hash tag, and in a Cluster all are declared; and any name will do.

// cluster starts a server in cluster mode that has all the slots.
func cluster(t *testing.T, binary string) *testredis.Server {
	t.Helper()
	server := testredis.StartBinary(t, binary, "--cluster-enabled", "yes")
	commandOn(t, server, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	w := testkit.OnServers(t, server)
	w.Eventually("the cluster serves", func() bool {
		return strings.Contains(commandOn(t, server, "CLUSTER", "INFO").(string), "cluster_state:ok")
	})
	return server
}

// A cluster refuses scripts whose keys are of different slots.
func TestF23ClusterServesAnyName(t *testing.T) {
	t.Parallel() // a new cluster takes its time
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		server := cluster(t, binary)
		client := func() rueidis.Client {
			c := expect.NoError(rwlock.Dial("", rueidis.ClientOption{InitAddress: []string{server.Addr()}})).In(t)
			t.Cleanup(c.Close)
			require.Equal(t, rueidis.ClientModeCluster, c.Mode())
			return c
		}
		w := testkit.OnServers(t, server)
		p := testkit.New(t, client(), testredis.Patience())
		q := testkit.New(t, client(), testredis.Patience())
		for _, name := range trickyNames {
			held := expect.NoError(p.Lock(t.Context(), name)).In(t, name)
			waiting := (&process{Locker: q, W: w}).Acquire(t.Context(), name, rwlock.Read)
			w.Eventually("it waits", func() bool { return len(expect.NoError(p.Inspect(t.Context(), name)).In(t).Waiters) == 1 })
			slots := map[any][]string{}
			for _, key := range w.LockKeys() {
				slot := commandOn(t, server, "CLUSTER", "KEYSLOT", key)
				slots[slot] = append(slots[slot], key)
			}
			require.Len(t, slots, 1, "%q", name)
			require.NoError(t, held.Renew(t.Context()))
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, waiting.Granted().Release(t.Context()))
			w.OnlyTokensLeft()
			commandOn(t, server, "FLUSHALL")
		}
	}
}

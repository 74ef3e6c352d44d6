package rwlock_test

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
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
			c, err := rwlock.Dial("", rueidis.ClientOption{InitAddress: []string{server.Addr()}})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			require.Equal(t, rueidis.ClientModeCluster, c.Mode())
			return c
		}
		w := testkit.OnServers(t, server)
		p := testkit.New(t, client())
		q := testkit.New(t, client())
		for _, name := range trickyNames {
			held, err := p.Lock(t.Context(), name)
			require.NoError(t, err, "%q", name)
			waiting := (&process{Locker: q, W: w}).Acquire(t.Context(), name, rwlock.Read)
			w.Eventually("it waits", func() bool {
				s, err := p.Inspect(t.Context(), name)
				require.NoError(t, err)
				return len(s.Waiters) == 1
			})
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

// lockerOver returns a locker over a client of its own. Both are closed when the test ends.
func lockerOver(t *testing.T, addr string, option rueidis.ClientOption) *rwlock.Locker {
	locker := testkit.Dial(t, addr, option)
	return locker
}

// Every key that a script touches is one of its lock, by the rights of a user of these only; and a call names the lock.
func TestF23CallsNameTheLock(t *testing.T) {
	server := testredis.Start(t)
	const name = "a:{b}%"
	keys := []string{"", ":h", ":q", ":x"}
	rules := []string{"ACL", "SETUSER", "narrow", "on", ">secret", "&*", "+@all", "~" + testkit.Marker}
	for i, suffix := range keys {
		keys[i] = "fencelock:{a:%7Bb%7D%25}" + suffix
		rules = append(rules, "~"+keys[i])
	}
	commandOn(t, server, rules...)
	narrow := rueidis.ClientOption{Dialer: net.Dialer{Timeout: testkit.Patience}, Username: "narrow", Password: "secret"}
	locker := lockerOver(t, server.Addr(), narrow)
	proxy := testredis.NewProxy(t, server.Addr())
	proxy.OnCommand(func(cmd []string) {
		declared := keys[:1]
		switch testkit.ScriptOf(cmd) {
		case "":
			return
		case scripts.Marker:
			declared = []string{testkit.Marker}
		}
		if n := len(declared); cmd[2] != strconv.Itoa(n) || !slices.Equal(cmd[3:3+n], declared) {
			t.Errorf("%s declares %q", testkit.ScriptOf(cmd), cmd[2:])
		}
	})
	other := lockerOver(t, proxy.Addr(), narrow)

	w := testkit.OnServers(t, server)
	held, err := locker.Lock(t.Context(), name)
	require.NoError(t, err)
	waiting := (&process{Locker: other, W: w}).Acquire(t.Context(), name, rwlock.Write)
	w.Eventually("it waits", func() bool {
		s, err := locker.Inspect(t.Context(), name)
		require.NoError(t, err)
		return len(s.Waiters) == 1
	})
	require.NoError(t, held.Release(t.Context()))
	next := waiting.Granted()
	require.NoError(t, next.Renew(t.Context()))
	require.NoError(t, next.Release(t.Context()))
}

package rwlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// pinged waits for the answer of Ping that a server gives once a change of it is through.
func pinged(t *testing.T, l *rwlock.Locker, addr string, says ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := l.Ping(t.Context())
		for _, part := range append(says, addr) {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Log(err)
				return false
			}
		}
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		return true
	}, testkit.Patience, 10*time.Millisecond, "%q", says)
}

// Each trouble of a server is named, with its cure, and is over when the server is well again. Ping writes nothing.
func TestPing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	set := func(args ...string) { commandOn(t, server, append([]string{"CONFIG", "SET"}, args...)...) }
	l := testkit.Dial(t, server.Addr(), rueidis.ClientOption{}, testredis.Patience())
	well := func() { t.Helper(); require.NoError(t, l.Ping(t.Context())) }
	well()
	require.EqualValues(t, 0, commandOn(t, server, "DBSIZE"))
	for _, c := range []struct{ option, bad, good, trouble, cure string }{
		{"maxmemory", "1kb", "0", "OOM", "raise maxmemory"},
		{"min-replicas-to-write", "1", "0", "NOREPLICAS", "min-replicas-to-write"},
	} {
		set(c.option, c.bad)
		pinged(t, l, server.Addr(), c.trouble, c.cure)
		set(c.option, c.good)
		well()
	}
	set("maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
	pinged(t, l, server.Addr(), "maxmemory-policy is allkeys-lru", "noeviction")
	set("maxmemory", "0")
	well()

	for user, rules := range map[string]string{
		"noscripts": "on >secret ~* &* +@all -@scripting", "nokeys": "on >secret ~other:* &* +@all",
	} {
		commandOn(t, server, append([]string{"ACL", "SETUSER", user}, strings.Fields(rules)...)...)
		as := testkit.Dial(t, server.Addr(), rueidis.ClientOption{Username: user, Password: "secret"}, testredis.Patience())
		pinged(t, as, server.Addr(), "NOPERM", "SECURITY.md")
	}
	wrong := testkit.Dial(t, server.Addr(), rueidis.ClientOption{Username: "nokeys", Password: "guess"})
	pinged(t, wrong, server.Addr(), "WRONGPASS", "user and password")

	replica := testredis.Start(t)
	replica.ReplicaOf(server)
	pinged(t, testkit.Dial(t, replica.Addr(), rueidis.ClientOption{}), replica.Addr(), "READONLY", "locks need its master")

	server.Freeze()
	pinged(t, l, server.Addr(), "no reply", "CLIENT UNPAUSE")
	server.Thaw()
	server.Kill()
	pinged(t, l, server.Addr(), "connection refused", "is it running")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Ping(ended), context.Canceled)
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Ping(t.Context()), rwlock.ErrClosed)
}

// A server that still reads its data takes no writes.
func TestPingWhileAServerLoads(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--rdbcompression", "no", "--enable-debug-command", "yes")
	commandOn(t, server, "DEBUG", "POPULATE", "5000", "key", "4096")
	commandOn(t, server, "SAVE")
	slow := testredis.Start(t, "--loading-process-events-interval-bytes", "1024", "--key-load-delay", "10000",
		"--dir", folderOf(t, server))
	l := testkit.Dial(t, slow.Addr(), rueidis.ClientOption{}, testredis.Patience())
	pinged(t, l, slow.Addr(), "LOADING", "wait: ")
}

// Sentinel: the master is asked. Cluster: each server with slots is.
func TestPingOfAGroup(t *testing.T) {
	t.Parallel()
	binary := redisBinary(t)
	for name, group := range map[string]testredis.Deployment{
		"Sentinel": testredis.StartSentinel(t, binary), "Cluster": testredis.StartCluster(t, binary, 0),
	} {
		l := testkit.Dial(t, "", group.Option(), testredis.Patience())
		require.NoError(t, l.Ping(t.Context()), name)
	}
	cluster := testredis.StartCluster(t, binary, 0)
	l := testkit.Dial(t, "", cluster.Option(), testredis.Patience())
	for _, node := range cluster.Nodes() {
		commandOn(t, node, "CONFIG", "SET", "maxmemory", "1kb")
		pinged(t, l, node.Addr(), "OOM")
		commandOn(t, node, "CONFIG", "SET", "maxmemory", "0")
		require.NoError(t, l.Ping(t.Context()))
	}
}

// Over a quorum the error is ErrNoQuorum only if too few masters are left.
func TestPingOverAQuorum(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	var addrs []string
	for _, s := range w.Servers {
		addrs = append(addrs, s.Addr())
	}
	l, err := redlock.Open(addrs, testredis.Patience())
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	require.NoError(t, l.Ping(t.Context()))
	w.Servers[2].Kill()
	err = l.Ping(t.Context())
	require.NotErrorIs(t, err, rwlock.ErrNoQuorum)
	var node *rwlock.NodeError
	require.ErrorAs(t, err, &node)
	require.Equal(t, 2, node.Index)
	require.ErrorContains(t, err, addrs[2])
	w.Servers[0].Kill()
	err = l.Ping(t.Context())
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, err, addrs[0])
	require.ErrorContains(t, err, addrs[2])
}

func folderOf(t *testing.T, server *testredis.Server) string {
	t.Helper()
	reply := commandOn(t, server, "CONFIG", "GET", "dir")
	return reply.([]any)[1].(string)
}

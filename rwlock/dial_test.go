package rwlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A client that Dial returns can be used; where it returns none, its error does not speak of one.
func TestDialWhereNobodyListens(t *testing.T) {
	const addr = "127.0.0.1:1" // no server takes the lowest port
	for name, c := range map[string]struct {
		addr   string
		base   rueidis.ClientOption
		client bool
	}{
		"one server": {addr: addr, client: true},
		"a Cluster":  {base: rueidis.ClientOption{InitAddress: []string{addr}}},
		"Sentinel": {base: rueidis.ClientOption{
			InitAddress: []string{addr}, Sentinel: rueidis.SentinelOption{MasterSet: "locks"},
		}},
		"nobody": {base: rueidis.ClientOption{}},
	} {
		client, err := rwlock.Dial(c.addr, c.base)
		require.Error(t, err, name)
		require.Equal(t, c.client, client != nil, "%s: %v", name, err)
		if client != nil {
			client.Close()
		}
	}
}

func TestDialRefusesWhatIsNoAddress(t *testing.T) {
	for addr, says := range map[string]string{
		"": "names a server", "redis://127.0.0.1:6379": "no URL",
		"localhost": "host:port", "127.0.0.1:99999": "host:port", "127.0.0.1:": "host:port",
	} {
		client, err := rwlock.Dial(addr, rueidis.ClientOption{})
		require.Nil(t, client)
		require.ErrorIs(t, err, rwlock.ErrOption)
		require.ErrorContains(t, err, says)
	}
}

// They are no matter of the network: nothing is dialled.
func TestDialRefusesOptionsThatCannotBe(t *testing.T) {
	const one = "127.0.0.1:1"
	replicas := rueidis.StandaloneOption{ReplicaAddress: []string{one}}
	for _, c := range []struct {
		option, addr string
		base         rueidis.ClientOption
	}{
		{"base.ReplicaOnly", one, rueidis.ClientOption{ReplicaOnly: true}},
		{"base.ReplicaOnly", "", rueidis.ClientOption{ReplicaOnly: true, InitAddress: []string{one}}},
		{"base.Standalone.ReplicaAddress", one, rueidis.ClientOption{Standalone: replicas}},
		{"base.Standalone.EnableRedirect", one, rueidis.ClientOption{
			Standalone: rueidis.StandaloneOption{EnableRedirect: true},
		}},
		{"base.Sentinel.MasterSet", one, rueidis.ClientOption{Sentinel: rueidis.SentinelOption{MasterSet: "locks"}}},
	} {
		c.base.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			t.Error(c.option, "dialled")
			return nil, net.ErrClosed
		}
		client, err := rwlock.Dial(c.addr, c.base)
		require.Nil(t, client)
		var refused *rwlock.OptionError
		require.ErrorAs(t, err, &refused, c.option)
		require.Equal(t, c.option, refused.Option)
	}
}

// Whoever dials by a function of his own may have other addresses.
func TestDialByAFunctionOfOnesOwn(t *testing.T) {
	refused := errors.New("dialled")
	for name, base := range map[string]rueidis.ClientOption{
		"DialFn": {DialFn: func(string, *net.Dialer, *tls.Config) (net.Conn, error) { return nil, refused }},
		"DialCtxFn": {DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return nil, refused
		}},
	} {
		client, err := rwlock.Dial("/run/redis.sock", base)
		require.ErrorIs(t, err, refused, name)
		require.ErrorIs(t, err, rwlock.ErrNoQuorum, name)
		client.Close()
	}
}

// One that accepts and never answers holds Dial up for a bounded time, whatever it is taken for.
func TestDialWhereNobodyAnswers(t *testing.T) {
	t.Parallel()                                    // it waits in vain
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() }) // after the parallel subtests; a defer would run before them
	addr := silent.Addr().String()
	for name, c := range map[string]struct {
		addr string
		base rueidis.ClientOption
	}{
		"one server": {addr: addr},
		"a Cluster":  {base: rueidis.ClientOption{InitAddress: []string{addr}}},
		"Sentinel": {base: rueidis.ClientOption{
			InitAddress: []string{addr}, Sentinel: rueidis.SentinelOption{MasterSet: "locks"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			client, err := rwlock.Dial(c.addr, c.base)
			require.ErrorContains(t, err, addr+": no reply in 1s, the limit of base.Dialer.Timeout")
			require.ErrorAs(t, err, new(*rwlock.NoReplyError))
			require.NotErrorIs(t, err, context.DeadlineExceeded, "Dial has no context")
			require.Less(t, time.Since(began), testkit.Patience)
			if client != nil {
				client.Close()
			}
		})
	}
}

// A wrong password is an error of Dial for every deployment. The client of one server connects once the server accepts
// the password.
func TestDialWithAWrongPassword(t *testing.T) {
	t.Parallel() // starting servers is mostly waiting
	binary := redisBinary(t)
	server := testredis.StartBinary(t, binary, "--requirepass", "right")
	for given, refusal := range map[string]string{"wrong": "WRONGPASS", "": "NOAUTH"} {
		for _, old := range []bool{false, true} {
			client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{Password: given, AlwaysRESP2: old})
			require.ErrorIs(t, err, rwlock.ErrNoQuorum)
			require.ErrorContains(t, err, server.Addr()+": "+refusal)
			client.Close()
		}
	}
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{Password: "later"})
	require.ErrorContains(t, err, "WRONGPASS")
	defer client.Close()
	locker, err := rwlock.New(client, testredis.Patience())
	require.NoError(t, err)
	defer func() { _ = locker.Close() }()
	_, err = locker.Lock(t.Context(), "a")
	require.ErrorContains(t, err, "WRONGPASS")
	admin, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{Password: "right"})
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, admin.Do(t.Context(),
		admin.B().Arbitrary("CONFIG", "SET", "requirepass", "later").Build()).Error())
	require.Eventually(t, func() bool {
		lease, err := locker.Lock(t.Context(), "a")
		return err == nil && lease.Release(t.Context()) == nil
	}, testkit.Patience, 10*time.Millisecond)

	node := testredis.StartCluster(t, binary, 0).Nodes()[0]
	commandOn(t, node, "CONFIG", "SET", "requirepass", "right")
	client, err = rwlock.Dial("", rueidis.ClientOption{InitAddress: []string{node.Addr()}, Password: "wrong"})
	require.Nil(t, client)
	require.ErrorContains(t, err, node.Addr()+": WRONGPASS")
}

// A server that does not decide alone is no server for Dial with an address; the error says what to do.
func TestDialRefusesAnAddressThatIsNoServerOfItsOwn(t *testing.T) {
	t.Parallel() // starting a group is mostly waiting
	binary := redisBinary(t)
	sentinel := testredis.StartSentinel(t, binary)
	node := testredis.StartBinary(t, binary, "--cluster-enabled", "yes")
	for says, addr := range map[string]string{
		"is a sentinel": sentinel.Sentinels()[0].Addr(), "is a node of a Cluster": node.Addr(),
	} {
		client, err := rwlock.Dial(addr, rueidis.ClientOption{})
		require.Nil(t, client)
		var refused *rwlock.OptionError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "addr", refused.Option)
		require.ErrorContains(t, err, addr)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "base.InitAddress")
	}

	// Servers that the options name are of the kind that the options say, or the error says what to do instead.
	plain := []string{testredis.StartBinary(t, binary).Addr(), testredis.StartBinary(t, binary).Addr()}
	var sentinels []string
	for _, s := range sentinel.Sentinels() {
		sentinels = append(sentinels, s.Addr())
	}
	for says, base := range map[string]rueidis.ClientOption{
		"redlock.Dial":                        {InitAddress: plain},
		"name the master that they watch":     {InitAddress: sentinels},
		"leave base.Sentinel.MasterSet empty": {InitAddress: plain, Sentinel: rueidis.SentinelOption{MasterSet: "m"}},
	} {
		client, err := rwlock.Dial("", base)
		require.Nil(t, client)
		var refused *rwlock.OptionError
		require.ErrorAs(t, err, &refused, says)
		require.Equal(t, "base.InitAddress", refused.Option)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, base.InitAddress[0])
	}

	// rueidis takes a Cluster that a user may not ask for its slots for one server.
	commandOn(t, node, "ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", "-cluster")
	client, err := rwlock.Dial("", rueidis.ClientOption{
		InitAddress: []string{node.Addr()}, Username: "locks", Password: "secret",
	})
	require.Nil(t, client)
	require.ErrorIs(t, err, rwlock.ErrOption)
	require.ErrorContains(t, err, "CLUSTER SLOTS")
}

// Who brings such a client of their own is told at the first use, for every name, and not only where the node has to
// send them elsewhere.
func TestClientOfOneServerOnACluster(t *testing.T) {
	t.Parallel() // a new cluster takes its time
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	for _, node := range cluster.Nodes() {
		locker := testkit.New(t, node.Client(t))
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			owner, marked := cluster.Owner(cluster.Slot("fencelock:{"+name+"}")), cluster.Owner(cluster.Slot(testkit.Marker))
			if owner == node && marked == node {
				continue // this node has all that is needed
			}
			for how, take := range acquisitions(locker) {
				ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
				_, err := take(ctx, name)
				require.Error(t, err, how)
				require.ErrorContains(t, err, "leave the address of Dial empty", how)
				require.NoError(t, ctx.Err(), "%s waited", how)
				cancel()
			}
		}
	}
}

// One node is enough to find a Cluster, whichever it is; the others are found by it.
func TestOneSeedIsEnoughForACluster(t *testing.T) {
	t.Parallel() // a new cluster takes its time
	cluster := testredis.StartCluster(t, redisBinary(t), 1)
	for _, seed := range cluster.Nodes() {
		client, err := rwlock.Dial("", rueidis.ClientOption{InitAddress: []string{seed.Addr()}})
		require.NoError(t, err)
		require.Equal(t, rueidis.ClientModeCluster, client.Mode())
		locker, err := rwlock.New(client)
		require.NoError(t, err)
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			lease, err := locker.Lock(t.Context(), name)
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
		require.NoError(t, locker.Close())
		client.Close()
	}
}

// redisBinary returns the binary of a Redis. See testredis.Require.
func redisBinary(t testing.TB) string {
	t.Helper()
	testredis.Require(t)
	return testredis.Binaries()[0]
}

package rwlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A server may be down when its client is made. A Cluster and sentinels have to answer: the client finds the masters by
// them.
func TestDialWhereNoServerListens(t *testing.T) {
	const addr = "127.0.0.1:1" // no server takes the lowest port
	client, err := rwlock.Dial(addr, rueidis.ClientOption{})
	require.NoError(t, err)
	client.Close()
	for name, base := range map[string]rueidis.ClientOption{
		"a Cluster": {InitAddress: []string{addr}},
		"Sentinel":  {InitAddress: []string{addr}, Sentinel: rueidis.SentinelOption{MasterSet: "locks"}},
	} {
		client, err := rwlock.Dial("", base)
		require.Nil(t, client, name)
		require.ErrorIs(t, err, rwlock.ErrNoQuorum, name)
		require.ErrorContains(t, err, addr, name)
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

// A dial function of the caller may have addresses of another form.
func TestDialByAFunctionOfItsCaller(t *testing.T) {
	refused := errors.New("dialled")
	for name, base := range map[string]rueidis.ClientOption{
		"DialFn": {DialFn: func(string, *net.Dialer, *tls.Config) (net.Conn, error) { return nil, refused }},
		"DialCtxFn": {DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return nil, refused
		}},
	} {
		client := dial(t, "/run/redis.sock", base)
		require.ErrorIs(t, client.Do(t.Context(), client.B().Ping().Build()).Error(), refused, name)
	}
}

// One that accepts and never answers holds Dial up for a bounded time, whatever it is taken for.
func TestDialWhereNobodyAnswers(t *testing.T) {
	t.Parallel()                                    // it waits in vain
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() }) // after the parallel subtests; a defer would run before them
	addr := silent.Addr().String()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		dial(t, addr, rueidis.ClientOption{})
	})
	for name, base := range map[string]rueidis.ClientOption{
		"a Cluster": {InitAddress: []string{addr}},
		"Sentinel":  {InitAddress: []string{addr}, Sentinel: rueidis.SentinelOption{MasterSet: "locks"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := rwlock.Dial("", base)
			require.ErrorContains(t, err, addr+": no reply in 1s, the limit of base.Dialer.Timeout")
			require.ErrorAs(t, err, new(*rwlock.NoReplyError))
			require.NotErrorIs(t, err, context.DeadlineExceeded, "Dial has no context")
		})
	}
}

// The client of one server connects once the server accepts its password: also where the server is down at first, and
// where it gets another password later. A Cluster that refuses the password is an error of Dial.
func TestOpenUntilTheServerAcceptsIt(t *testing.T) {
	t.Parallel() // starting servers is mostly waiting
	binary := redisBinary(t)
	server := testredis.StartBinary(t, binary, "--requirepass", "right")
	server.Kill()
	locker, err := rwlock.Open("redis://:later@"+server.Addr()+"/3", testredis.Patience())
	require.NoError(t, err)
	defer func() { require.NoError(t, locker.Close()) }()
	_, err = locker.TryLock(t.Context(), "a")
	require.ErrorContains(t, err, "connection refused")
	server.Restart()
	for given, refusal := range map[string]string{"wrong": "WRONGPASS", "": "NOAUTH"} {
		for _, old := range []bool{false, true} {
			other := testkit.New(t, dial(t, server.Addr(), rueidis.ClientOption{Password: given, AlwaysRESP2: old}))
			_, err := other.Lock(t.Context(), "a")
			require.ErrorIs(t, err, rwlock.ErrNoQuorum)
			require.ErrorContains(t, err, server.Addr()+": "+refusal)
		}
	}
	_, err = locker.Lock(t.Context(), "a")
	require.ErrorContains(t, err, "WRONGPASS")
	admin := dial(t, server.Addr(), rueidis.ClientOption{Password: "right", SelectDB: 3})
	run := func(args ...string) rueidis.RedisResult {
		return admin.Do(t.Context(), admin.B().Arbitrary(args...).Build())
	}
	require.NoError(t, run("CONFIG", "SET", "requirepass", "later").Error())
	require.Eventually(t, func() bool {
		lease, err := locker.Lock(t.Context(), "a")
		return err == nil && lease.Release(t.Context()) == nil
	}, testkit.Patience, 10*time.Millisecond)
	found, err := run("EXISTS", "fencelock:{a}").ToInt64()
	require.NoError(t, err)
	require.EqualValues(t, 1, found, "in database 3")

	node := testredis.StartCluster(t, binary, 0).Nodes()[0]
	commandOn(t, node, "CONFIG", "SET", "requirepass", "right")
	client, err := rwlock.Dial("", rueidis.ClientOption{InitAddress: []string{node.Addr()}, Password: "wrong"})
	require.Nil(t, client)
	require.ErrorContains(t, err, node.Addr()+": WRONGPASS")
}

// A URL names one server, sentinels or a Cluster. Close closes the client that Open has made: goleak would see it.
func TestOpen(t *testing.T) {
	t.Parallel() // starting groups is mostly waiting
	binary := redisBinary(t)
	group, cluster := testredis.StartSentinel(t, binary), testredis.StartCluster(t, binary, 0)
	socket := filepath.Join(t.TempDir(), "redis.sock")
	plain := testredis.StartBinary(t, binary, "--unixsocket", socket)
	nodes := cluster.Nodes()
	for name, addr := range map[string]string{
		"address": plain.Addr(), "URL": "REDIS://" + plain.Addr() + "/?client_name=shop", "socket": "unix://" + socket,
		"Sentinel": "redis://" + group.Sentinels()[0].Addr() + "?master_set=" + group.Option().Sentinel.MasterSet,
		"Cluster":  "redis://" + nodes[0].Addr() + "?addr=" + nodes[1].Addr(),
	} {
		locker, err := rwlock.Open(addr, testredis.Patience())
		require.NoError(t, err, name)
		require.NoError(t, locker.Do(t.Context(), "n", func(context.Context) error { return nil }), name)
		require.NoError(t, locker.Close(), name)
		require.NoError(t, locker.Close(), name)
	}
	for says, addr := range map[string]string{
		"host:port": "localhost", `"" must be`: "", "invalid URL scheme": "http://localhost:6379",
		"invalid database number": "redis://:secret@localhost/first", "must be 1 to 128 bytes": plain.Addr(),
		"invalid port": "redis://:secret@localhost:port",
	} {
		locker, err := rwlock.Open(addr, rwlock.WithPrefix(strings.Repeat("p", 129)))
		require.Nil(t, locker)
		require.ErrorIs(t, err, rwlock.ErrOption)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "secret")
	}
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

// redisBinary returns the binary of a Redis. See testredis.Require.
func redisBinary(t testing.TB) string {
	t.Helper()
	testredis.Require(t)
	return testredis.Binaries()[0]
}

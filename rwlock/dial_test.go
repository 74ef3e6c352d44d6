package rwlock_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A server may be down when its client is made. A Cluster and sentinels have to answer.
func TestDialWhereNoServerListens(t *testing.T) {
	const addr = "127.0.0.1:1" // no server takes the lowest port
	expect.NoError(rwlock.Dial(addr, rueidis.ClientOption{})).In(t).Close()
	for name, base := range map[string]rueidis.ClientOption{
		"a Cluster": {InitAddress: []string{addr}},
		"Sentinel":  {InitAddress: []string{addr}, Sentinel: rueidis.SentinelOption{MasterSet: "locks"}},
	} {
		err := expect.ErrorOf(rwlock.Dial("", base))
		require.ErrorIs(t, err, rwlock.ErrNoQuorum, name)
		require.ErrorContains(t, err, addr, name)
	}
}

func TestDialRefusesWhatIsNoAddress(t *testing.T) {
	for addr, says := range map[string]string{
		"": "names a server", "redis://127.0.0.1:6379": "no URL",
		"localhost": "host:port", "127.0.0.1:99999": "host:port", "127.0.0.1:": "host:port",
	} {
		expect.Fails(t, expect.ErrorOf(rwlock.Dial(addr, rueidis.ClientOption{})), rwlock.ErrOption, says)
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
		refused := testkit.As[*rwlock.OptionError](t, expect.ErrorOf(rwlock.Dial(c.addr, c.base)), c.option)
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
	t.Run("one server", func(t *testing.T) { t.Parallel(); dial(t, addr, rueidis.ClientOption{}) })
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
	addr := "redis://:later@" + server.Addr() + "/3"
	locker := expect.NoError(rwlock.Open(addr, testredis.Silent(), testredis.Patience())).In(t)
	defer func() { require.NoError(t, locker.Close()) }()
	require.ErrorContains(t, expect.ErrorOf(locker.TryLock(t.Context(), "a")), "connection refused")
	server.Restart()
	for given, refusal := range map[string]string{"wrong": "WRONGPASS", "": "NOAUTH"} {
		for _, old := range []bool{false, true} {
			other := testkit.Dial(t, server.Addr(), rueidis.ClientOption{Password: given, AlwaysRESP2: old})
			expect.Fails(t, expect.ErrorOf(other.Lock(t.Context(), "a")), rwlock.ErrNoQuorum, server.Addr()+": "+refusal)
		}
	}
	require.ErrorContains(t, expect.ErrorOf(locker.Lock(t.Context(), "a")), "WRONGPASS")
	admin := dial(t, server.Addr(), rueidis.ClientOption{Password: "right", SelectDB: 3})
	run := func(args ...string) rueidis.RedisResult {
		return admin.Do(t.Context(), admin.B().Arbitrary(args...).Build())
	}
	require.NoError(t, run("CONFIG", "SET", "requirepass", "later").Error())
	require.Eventually(t, func() bool {
		lease, err := locker.Lock(t.Context(), "a")
		return err == nil && lease.Release(t.Context()) == nil
	}, testkit.Patience, 10*time.Millisecond)
	require.EqualValues(t, 1, expect.NoError(run("EXISTS", "fencelock:{a}").ToInt64()).In(t), "in database 3")

	node := testredis.StartCluster(t, binary, 0).Nodes()[0]
	commandOn(t, node, "CONFIG", "SET", "requirepass", "right")
	err := expect.ErrorOf(rwlock.Dial("", rueidis.ClientOption{InitAddress: []string{node.Addr()}, Password: "wrong"}))
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
		locker := expect.NoError(rwlock.Open(addr, testredis.Silent(), testredis.Patience())).In(t, name)
		require.NoError(t, locker.Do(t.Context(), "n", func(context.Context) error { return nil }), name)
		require.NoError(t, locker.Close(), name)
		require.NoError(t, locker.Close(), name)
	}
	for says, addr := range map[string]string{
		"host:port": "localhost", `"" must be`: "", "which begins with redis://": "http://:secret@localhost:6379",
		"number of a database": "redis://:secret@localhost/first", "must be 1 to 128 bytes": plain.Addr(),
		"each server of a URL must be": "redis://:secret@localhost:port",
		"must be host or host:port":    "redis://:secret@localhost:6379:6379",
		"which redlock.Open takes":     "redis://:secret@a:1,b:1,c:1",
	} {
		err := expect.ErrorOf(rwlock.Open(addr, rwlock.WithPrefix(strings.Repeat("p", 129))))
		expect.Fails(t, err, rwlock.ErrOption, says)
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
		err := expect.ErrorOf(rwlock.Dial(addr, rueidis.ClientOption{}))
		require.Equal(t, "addr", testkit.As[*rwlock.OptionError](t, err).Option)
		expect.Fails(t, err, addr, says, "base.InitAddress")
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
		err := expect.ErrorOf(rwlock.Dial("", base))
		require.Equal(t, "base.InitAddress", testkit.As[*rwlock.OptionError](t, err, says).Option)
		expect.Fails(t, err, says, base.InitAddress[0])
	}

	// rueidis takes a Cluster that a user may not ask for its slots for one server.
	commandOn(t, node, "ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", "-cluster")
	limited := rueidis.ClientOption{InitAddress: []string{node.Addr()}, Username: "locks", Password: "secret"}
	expect.Fails(t, expect.ErrorOf(rwlock.Dial("", limited)), rwlock.ErrOption, "CLUSTER SLOTS")
}

// redisBinary returns the binary of a Redis. See testredis.Require.
func redisBinary(t testing.TB) string {
	t.Helper()
	testredis.Require(t)
	return testredis.Binaries()[0]
}

// socket counts the writes that go out. Like one of the system it takes them without waiting for the other end.
type socket struct {
	net.Conn
	writes *atomic.Int64
	sent   chan []byte
	gone   chan struct{}
	close  sync.Once
}

func newSocket(conn net.Conn, writes *atomic.Int64) *socket {
	s := &socket{Conn: conn, writes: writes, sent: make(chan []byte, 1024), gone: make(chan struct{})}
	go func() {
		for {
			select {
			case b := <-s.sent:
				_, _ = conn.Write(b) // where it fails, reading fails as well
			case <-s.gone:
				return
			}
		}
	}()
	return s
}

func (s *socket) Write(b []byte) (int, error) {
	select {
	case <-s.gone:
		return 0, net.ErrClosed
	default:
	}
	s.writes.Add(1)
	s.sent <- bytes.Clone(b)
	return len(b), nil
}

func (s *socket) Close() error {
	s.close.Do(func() { close(s.gone) })
	return s.Conn.Close()
}

// What many goroutines ask for at once leaves in few writes. One processor runs all of them, so that those who are
// ready to run do not run already; and time is fake, so that writes follow each other closely on any machine.
func TestManyCallersShareWrites(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const callers, rounds = 64, 50
		var writes atomic.Int64
		option := testredis.NewMini(t).NewLink().Option()
		dial := option.DialCtxFn
		option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			conn, err := dial(ctx, addr, d, c)
			if err != nil {
				return nil, err
			}
			return newSocket(conn, &writes), nil
		}
		client := expect.NoError(rwlock.Dial("", option)).In(t)
		defer client.Close()

		synctest.Wait()
		before := writes.Load()
		for range rounds {
			burst(t, client, callers)
		}
		const commands = callers * rounds
		t.Logf("%d commands in %d writes", commands, writes.Load()-before)
		require.Less(t, writes.Load()-before, int64(commands/8))
	})
}

// burst has so many goroutines send a command each, all ready to run at once.
func burst(t *testing.T, client rueidis.Client, callers int) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for range callers {
		all.Go(func() {
			<-begin
			if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	close(begin)
	all.Wait()
}

// speaking is a connection to a server that says this, in pieces, whatever it is asked, and then closes it.
type speaking struct {
	net.Conn
	says []string
}

func (c *speaking) Read(b []byte) (int, error) {
	if len(c.says) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.says[0])
	if c.says[0] = c.says[0][n:]; c.says[0] == "" {
		c.says = c.says[1:]
	}
	return n, nil
}

func (c *speaking) Write(b []byte) (int, error) { return len(b), nil }

// What a server says before it closes a new connection is the cause. An answer before the connection broke is none.
func TestAServerThatTurnsItsClientsAway(t *testing.T) {
	for name, c := range map[string]struct {
		says  []string
		cause string
	}{
		"too many clients": {[]string{"-ERR max number of clients reached\r\n"}, "ERR max number of clients reached"},
		"in pieces":        {[]string{"-", "ERR max number", " of clients reached\r", "\n"}, "ERR max number of clients"},
		"protected mode":   {[]string{"-DENIED Redis is running in protected mode\r\n"}, "DENIED Redis is running in"},
		"nothing":          {nil, "closed without an answer to the first command (HELLO): EOF"},
		"half a line":      {[]string{"-ERR max number of clients re"}, "EOF"},
		"an answer":        {[]string{"-ERR unknown\r\n"}, "EOF"},
		"more than that":   {[]string{"-ERR max number of clients reached\r\n+OK\r\n"}, "EOF"},
		"more, in pieces":  {[]string{"-ERR max number of clients reached\r\n", "+OK\r\n"}, "EOF"},
	} {
		t.Run(name, func(t *testing.T) { turnedAway(t, c.says, c.cause, false) })
		t.Run(name+", writes coalesced by the system", func(t *testing.T) { turnedAway(t, c.says, c.cause, true) })
	}
}

func turnedAway(t *testing.T, says []string, cause string, coalesced bool) {
	here, there := net.Pipe()
	defer func() { _ = there.Close() }()
	client := expect.NoError(rwlock.Dial("server:6379", rueidis.ClientOption{
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return &speaking{here, slices.Clone(says)}, nil
		},
		DisableTCPNoDelay: coalesced,
	})).In(t)
	err := client.Do(t.Context(), client.B().Ping().Build()).Error()
	require.ErrorContains(t, err, cause)
	var failed *net.OpError
	if strings.HasSuffix(cause, "EOF") {
		require.ErrorIs(t, err, io.EOF)
	}
	if cause != "EOF" {
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "dial", failed.Op)
	}
	client.Close()
}

// The password of the locks' user changes while locks are held, and every connection is replaced: none is lost. First
// both passwords hold for a time; then the old one ends before the program knows the new one.
func TestAPasswordChangesWhileLocksAreHeld(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	run := func(args ...string) { commandOn(t, server, args...) }
	run("ACL", "SETUSER", "ann", "on", ">first", "~*", "&*", "+@all")
	var password atomic.Value
	password.Store("first")
	client := expect.NoError(rwlock.Dial(server.Addr(), rueidis.ClientOption{
		AuthCredentialsFn: func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			return rueidis.AuthCredentials{Username: "ann", Password: password.Load().(string)}, nil
		},
	})).In(t)
	defer client.Close()
	locker := expect.NoError(rwlock.New(client, rwlock.WithTTL(2*time.Minute), testredis.Patience())).In(t)
	defer func() { require.NoError(t, locker.Close()) }()
	var leases []*rwlock.Lease
	for i := range 20 {
		leases = append(leases, expect.NoError(locker.Lock(t.Context(), fmt.Sprint(i))).In(t))
	}
	var last error
	renewed := func() bool {
		for _, lease := range leases {
			if last = lease.Renew(t.Context()); last != nil {
				return false
			}
		}
		return true
	}

	run("ACL", "SETUSER", "ann", ">second") // the old one holds too
	password.Store("second")
	run("ACL", "SETUSER", "ann", "<first")
	run("CLIENT", "KILL", "USER", "ann")
	require.Eventually(t, renewed, time.Minute, time.Millisecond)

	run("ACL", "SETUSER", "ann", "resetpass", ">third") // the program does not know it
	run("CLIENT", "KILL", "USER", "ann")
	refused := func() bool { return !renewed() && strings.Contains(last.Error(), "WRONGPASS") }
	require.Eventually(t, refused, time.Minute, time.Millisecond)
	require.ErrorIs(t, last, rwlock.ErrNoQuorum)
	password.Store("third")
	require.Eventually(t, renewed, time.Minute, time.Millisecond)
	for _, lease := range leases {
		require.NoError(t, lease.Err())
		require.NoError(t, lease.Release(t.Context()))
	}
	require.Zero(t, locker.Stats().Lost.Total())
}

//go:build unix

package testredis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// onEachServer runs a test on every server binary that is installed.
func onEachServer(t *testing.T, test func(t *testing.T, srv *testredis.Server)) {
	t.Helper()
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			test(t, testredis.StartBinary(t, binary))
		})
	}
}

func TestServerFreezeAndThaw(t *testing.T) {
	onEachServer(t, func(t *testing.T, srv *testredis.Server) {
		client := srv.Client(t)
		srv.Freeze()
		err := client.Do(within(t, time.Second), set(client, "k", "v")).Error()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		srv.Thaw()
		got := expect.NoError(client.Do(t.Context(), get(client, "k")).ToString()).In(t)
		require.Equal(t, "v", got, "the command was under way and ran late")

		srv.Freeze()
		srv.Kill()
		_, err = srv.Command("PING")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}

// echo listens until the test ends, sends back what it gets, and closes when its client does.
func echo(t testing.TB) string {
	t.Helper()
	listener := expect.NoError(net.Listen("tcp", "127.0.0.1:0")).In(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return listener.Addr().String()
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn := expect.NoError(net.Dial("tcp", addr)).In(t)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn.(*net.TCPConn)
}

// eventually sets the key once the client has found out that its connection is cut.
func eventually(t *testing.T, client rueidis.Client, key string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return client.Do(within(t, time.Second), set(client, key, "v")).Error() == nil
	}, time.Minute, time.Millisecond)
}

// echoed sends the bytes through a connection and returns what comes back until its end.
func echoed(t *testing.T, addr string, sent []byte) []byte {
	t.Helper()
	conn := dial(t, addr)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	})
	got, err := io.ReadAll(conn)
	wg.Wait()
	require.NoError(t, err)
	return got
}

func FuzzProxyPassesEveryByte(f *testing.F) {
	for _, seed := range []string{
		"", "hello", "\r\n", "*", "*2\r\n$x\r\n", "$-1\r\n", "*-1\r\n", "%1\r\n+k\r\n+v\r\n", ">1\r\n$7\r\nmessage\r\n",
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "*2\r\n$3\r\nGET\r\n$10\r\nabc",
		"$9223372036854775807\r\n", "*3\r\n$0\r\n\r\n$1\r\nab\r\n",
		"|1\r\n+a\r\n+b\r\n:1\r\n", strings.Repeat("*1\r\n", 100),
		"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "*1\r\n$999999999\r\n", "*1\r\n*-7\r\n",
	} {
		f.Add([]byte(seed))
	}
	proxy := testredis.NewProxy(f, echo(f))
	proxy.Duplicate(testredis.Named("none"), nil) // makes the proxy look into every command
	f.Fuzz(func(t *testing.T, sent []byte) {
		require.Equal(t, string(sent), string(echoed(t, proxy.Addr(), sent)))
	})
}

func TestProxyRefusesAndCuts(t *testing.T) {
	proxy := testredis.NewProxy(t, echo(t))
	open := dial(t, proxy.Addr())
	roundTrip := func() error {
		if _, err := open.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(open, make([]byte, 1))
		return err
	}
	require.NoError(t, roundTrip())

	proxy.Refuse()
	refused, err := net.Dial("tcp", proxy.Addr()) // the reset may come before or after dialling ends
	if err == nil {
		_, err = io.ReadAll(refused)
		_ = refused.Close()
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.NoError(t, roundTrip())

	proxy.Cut()
	require.Error(t, roundTrip())
}

func TestProxyBlackholeAndDelayBeforeARealServer(t *testing.T) {
	onEachServer(t, func(t *testing.T, srv *testredis.Server) {
		proxy := testredis.NewProxy(t, srv.Addr())
		client := proxy.Client(t)

		proxy.Delay(10 * time.Millisecond)
		start := time.Now()
		require.NoError(t, client.Do(t.Context(), set(client, "a", "v")).Error())
		require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
		proxy.Delay(0)

		proxy.Blackhole(testredis.ToClient)
		err := client.Do(within(t, time.Second), set(client, "b", "v")).Error()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "v", expect.NoError(srv.Command("GET", "b")).In(t))

		proxy.Restore()
		proxy.Cut()
		eventually(t, client, "c")
	})
}

func TestProxyRulesBeforeARealServer(t *testing.T) {
	onEachServer(t, func(t *testing.T, srv *testredis.Server) {
		proxy := testredis.NewProxy(t, srv.Addr())
		client := proxy.Client(t)
		struck := proxy.DropNextReply(testredis.Named("INCR"))
		require.Error(t, client.Do(t.Context(), client.B().Incr().Key("n").Build()).Error())
		<-struck
		proxy.Duplicate(testredis.Named("INCR"), nil)
		n := expect.NoError(client.Do(t.Context(), client.B().Incr().Key("n").Build()).AsInt64()).In(t)
		require.EqualValues(t, 2, n)
		require.Equal(t, 3, proxy.Calls("INCR"))
		require.Equal(t, 3, srv.Stats()["incr"].Calls)
	})
}

func TestSkewedServerHasTheClockThatItIsGiven(t *testing.T) {
	server := testredis.StartSkewed(t)
	ahead := func() time.Duration {
		reply := expect.NoError(server.Command("EVAL", "return tonumber(redis.call('TIME')[1])", "0")).In(t)
		return time.Until(time.Unix(reply.(int64), 0))
	}
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		server.Skew(skew)
		require.InDelta(t, skew, ahead(), float64(20*time.Second))
	}
	server.Skew(time.Hour)
	server.Restart()
	require.InDelta(t, time.Hour, ahead(), float64(20*time.Second))
}

func TestSkewedServerHasAClockThatStandsStill(t *testing.T) {
	server := testredis.StartSkewed(t)
	for _, at := range []time.Time{time.UnixMicro(1_800_000_000_000_001), time.UnixMicro(1_700_000_000_999_999)} {
		server.Stand(at)
		for range 3 {
			reply := expect.NoError(server.Command("TIME")).In(t)
			us := fmt.Sprintf("%06d", at.Nanosecond()/1000)
			require.Equal(t, []any{fmt.Sprint(at.Unix()), strings.TrimLeft(us[:5], "0") + us[5:]}, reply)
		}
	}
}

// verdict records how a test would have ended.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Helper()           {}
func (v *verdict) Skip(args ...any)  { v.skipped = fmt.Sprint(args...) }
func (v *verdict) Fatal(args ...any) { v.failed = fmt.Sprint(args...) }

func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestRequireWithoutAServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("FENCELOCK_SERVER", "")
	t.Setenv("FENCELOCK_VALKEY", "none")
	require.Empty(t, testredis.Binaries())

	t.Setenv("CI", "")
	local := &verdict{TB: t}
	testredis.Require(local)
	require.Contains(t, local.skipped, "install the Debian package redis-server")
	require.Empty(t, local.failed)

	t.Setenv("CI", "true")
	ci := &verdict{TB: t}
	testredis.Require(ci)
	require.Contains(t, ci.failed, "install the Debian package redis-server")
	require.Empty(t, ci.skipped)
}

func TestNamedBinaryComesFirst(t *testing.T) {
	t.Setenv("FENCELOCK_SERVER", "")
	t.Setenv("FENCELOCK_TESTS", "all")
	testredis.Require(t)
	installed := testredis.Binaries()
	named := t.TempDir() + "/my-server"
	require.NoError(t, os.Symlink(installed[0], named))
	t.Setenv("FENCELOCK_SERVER", named)
	require.Equal(t, named, testredis.Binaries()[0])
	require.Contains(t, testredis.Binaries(), installed[0])
	t.Setenv("FENCELOCK_TESTS", "")
	require.Equal(t, []string{named}, testredis.Binaries(), "a plain run takes one kind")
}

// TestServerDiesWithTheTestBinary kills a second copy of this binary, which then cleans up nothing.
func TestServerDiesWithTheTestBinary(t *testing.T) {
	const role = "TESTREDIS_CHILD"
	if os.Getenv(role) != "" {
		srv := testredis.Start(t)
		fmt.Println(srv.Addr())
		select {}
	}
	testredis.Require(t)
	if runtime.GOOS != "linux" {
		t.Skip("this system has no signal for a dead parent")
	}
	child := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithTheTestBinary$")
	child.Env = append(os.Environ(), role+"=1")
	out := expect.NoError(child.StdoutPipe()).In(t)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	addr := lines.Text()
	conn := expect.NoError(net.Dial("tcp", addr)).In(t)
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	require.NoError(t, child.Process.Kill())

	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server is still there")
	require.NoError(t, conn.Close())
	require.Error(t, child.Wait())
}

// onEachKind runs a test on Redis and on Valkey.
func onEachKind(t *testing.T, test func(t *testing.T, binary string)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel() // a failover is mostly waiting
		testredis.Require(t)
		test(t, testredis.Binaries()[0])
	})
	t.Run("valkey", func(t *testing.T) {
		t.Parallel()
		test(t, testredis.Valkey(t))
	})
}

// connect returns a client of the deployment, over a link of its own.
func connect(t *testing.T, d testredis.Deployment) (*testredis.Link, rueidis.Client) {
	t.Helper()
	link := testredis.NewLink(t, d.Option())
	option := link.Option()
	option.DisableCache = true
	client := expect.NoError(rueidis.NewClient(option)).In(t)
	t.Cleanup(client.Close)
	return link, client
}

// A failover that is given up, since no replica takes its promotion, is begun again.
func TestAFailoverThatIsGivenUp(t *testing.T) {
	testredis.NeedAll(t, "the second one begins after many seconds")
	onEachKind(t, func(t *testing.T, binary string) {
		s := testredis.StartSentinel(t, binary)
		old, sentinel := s.Master(), s.Sentinels()[0]
		expect.NoError(sentinel.Command("SENTINEL", "SET", testredis.MasterSet, "FAILOVER-TIMEOUT", "1000")).In(t)
		promotion := func(sign string) {
			for _, replica := range s.Nodes()[1:] {
				_, err := replica.Command("ACL", "SETUSER", "default", sign+"slaveof", sign+"replicaof")
				assert.NoError(t, err)
			}
		}
		refused := func() bool { // once for each failover
			for _, replica := range s.Nodes()[1:] {
				if log, _ := replica.Command("ACL", "LOG"); strings.Contains(fmt.Sprint(log), "slaveof") {
					return true
				}
			}
			return false
		}
		promotion("-")
		var operator sync.WaitGroup
		defer operator.Wait()
		operator.Go(func() {
			defer promotion("+")
			assert.Eventually(t, refused, 2*time.Minute, 5*time.Millisecond)
		})
		require.NotSame(t, old, s.Failover())
	})
}

func TestTLS(t *testing.T) {
	onEachKind(t, func(t *testing.T, binary string) {
		s := testredis.StartTLS(t, binary)
		link, client := connect(t, s)
		require.NoError(t, client.Do(t.Context(), set(client, "k", "v")).Error())
		require.Equal(t, "v", expect.NoError(s.Command("GET", "k")).In(t))
		require.Equal(t, 1, link.Calls("SET"), "the link sees what is said")

		direct := expect.NoError(rueidis.NewClient(s.Option())).In(t)
		defer direct.Close()
		require.NoError(t, direct.Do(t.Context(), set(direct, "k", "w")).Error())
		stranger := s.Option()
		stranger.TLSConfig.RootCAs = nil
		refused, err := rueidis.NewClient(stranger)
		if refused != nil {
			defer refused.Close()
		}
		require.ErrorContains(t, err, "certificate")
	})
}

func TestValkeyIsNamedOrFound(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	named := filepath.Join(t.TempDir(), "valkey-server")
	t.Setenv("FENCELOCK_VALKEY", named)
	t.Setenv("CI", "true")
	require.NoError(t, os.WriteFile(named, nil, 0o700))
	require.Equal(t, named, testredis.Valkey(t))
	require.Contains(t, testredis.Binaries(), named)

	t.Setenv("FENCELOCK_VALKEY", "none")
	v := &verdict{TB: t}
	require.Empty(t, testredis.Valkey(v))
	require.Contains(t, v.skipped, "install-valkey")
	require.Empty(t, v.failed, "somebody has looked for it already")
}

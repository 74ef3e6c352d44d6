//go:build unix

package testredis_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// echo listens until the test ends, sends back what it gets, and closes when its client does.
func echo(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
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
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
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
		got, err := srv.Command("GET", "b")
		require.NoError(t, err)
		require.Equal(t, "v", got)

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
		n, err := client.Do(t.Context(), client.B().Incr().Key("n").Build()).AsInt64()
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		require.Equal(t, 3, proxy.Calls("INCR"))
		require.Equal(t, 3, srv.Stats()["incr"].Calls)
	})
}

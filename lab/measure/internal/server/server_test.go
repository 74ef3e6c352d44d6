package server_test

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/lab/measure/internal/server"
)

func TestMain(m *testing.M) {
	server.ServeDelayed()
	scratch.Use("fencelock-server")
	goleak.VerifyTestMain(m)
}

// start skips without the program; where CI=true it fails instead.
func start(t *testing.T) (*server.Server, rueidis.Client) {
	t.Helper()
	if !server.Installed() {
		const missing = "no redis-server on PATH: install the Debian package redis-server"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	s := expect.NoError(server.Start(t.Context(), server.Default)).In(t)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		_, err := net.Dial("tcp", s.Addr)
		require.Error(t, err, "the process has ended")
	})
	client := connect(t, s, "probe")
	return s, client
}

func connect(t *testing.T, s *server.Server, name string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true, ClientName: name,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func command(t *testing.T, c rueidis.Client, words ...string) {
	t.Helper()
	err := c.Do(t.Context(), c.B().Arbitrary(words...).Build()).Error()
	require.True(t, err == nil || rueidis.IsRedisNil(err), "%v: %v", words, err)
}

func TestADelayedServer(t *testing.T) {
	const each = 20 * time.Millisecond
	s, _ := start(t)
	proxy := expect.NoError(server.Delay(t.Context(), s, each)).In(t)
	defer func() { require.NoError(t, proxy.Close()) }()
	delayed := *s
	delayed.Addr = proxy.Addr
	client := connect(t, &delayed, "delayed")
	began := time.Now()
	command(t, client, "SET", "key", "value")
	require.GreaterOrEqual(t, time.Since(began), 2*each)
	require.NoError(t, proxy.Close())
	require.Error(t, client.Do(t.Context(), client.B().Arbitrary("PING").Build()).Error(), "it is no process any more")
}

func TestMonitorTellsSentFromInside(t *testing.T) {
	s, client := start(t)
	m := expect.NoError(s.Monitor(t.Context())).In(t)
	defer func() { require.NoError(t, m.Close()) }()
	command(t, client, "EVAL", "redis.call('SET', 'a', 'lua]') return redis.call('GET', 'a')", "0")
	command(t, client, "GET", "b] \"PING\"")
	command(t, client, "PING")
	require.Equal(t, server.Calls{Sent: 2, Inside: 2}, expect.NoError(m.Count(t.Context())).In(t))
	require.Zero(t, expect.NoError(m.Count(t.Context())).In(t), "since the last count")
}

func TestFootprint(t *testing.T) {
	s, client := start(t)
	require.Zero(t, expect.NoError(s.Footprint(t.Context())).In(t))
	command(t, client, "SET", "a", strings.Repeat("x", 1000), "PX", "60000")
	command(t, client, "SET", "b", "1")
	f := expect.NoError(s.Footprint(t.Context())).In(t)
	require.Equal(t, 2, f.Keys)
	require.Equal(t, 1, f.Forever)
	require.Greater(t, f.Bytes, int64(1000))
	require.LessOrEqual(t, f.Longest, time.Minute)
	require.Positive(t, f.Longest)
	require.NoError(t, s.Flush(t.Context()))
	require.Zero(t, expect.NoError(s.Footprint(t.Context())).In(t))
}

func TestCPUAndCommandsGrow(t *testing.T) {
	s, client := start(t)
	before := expect.NoError(s.Commands(t.Context())).In(t)
	command(t, client, "EVAL", "for i = 1, 10 do redis.call('GET', 'a') end", "0")
	after := expect.NoError(s.Commands(t.Context())).In(t)
	require.GreaterOrEqual(t, after-before, int64(11), "those inside scripts are counted")
	require.Positive(t, expect.NoError(s.CPU(t.Context())).In(t))
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := server.Start(ctx, server.Default)
	require.Error(t, err)
}

// requireCounted skips without the programs; where CI=true it fails instead.
func requireCounted(t *testing.T) {
	t.Helper()
	if server.Installed() && server.CountsInstructions() {
		return
	}
	const missing = "redis-server or valgrind is not on PATH: install the Debian packages of these names"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// What is counted is what was asked for since the last call: more for more commands, and next to nothing for none.
func TestInstructions(t *testing.T) {
	requireCounted(t)
	s := expect.NoError(server.StartCounted(t.Context(), server.Default)).In(t)
	defer func() { require.NoError(t, s.Close()) }()
	count := func(flushes int) int64 {
		expect.NoError(s.Instructions(t.Context())).In(t)
		for range flushes {
			require.NoError(t, s.Flush(t.Context()))
		}
		return expect.NoError(s.Instructions(t.Context())).In(t)
	}
	count(1) // the first one allocates
	few, many := count(20), count(200)
	require.Positive(t, few)
	require.Greater(t, many, 3*few)
}

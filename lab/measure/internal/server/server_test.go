package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/measure/internal/server"
)

func TestMain(m *testing.M) {
	server.ServeDelayed()
	scratch.Use("fencelock-server")
	goleak.VerifyTestMain(m)
}

func connect(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
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
	s := testredis.Start(t)
	proxy := expect.NoError(server.Delay(t.Context(), s.Addr(), each)).In(t)
	defer func() { require.NoError(t, proxy.Close()) }()
	client := connect(t, proxy.Addr)
	began := time.Now()
	command(t, client, "SET", "key", "value")
	require.GreaterOrEqual(t, time.Since(began), 2*each)
	require.NoError(t, proxy.Close())
	require.Error(t, client.Do(t.Context(), client.B().Arbitrary("PING").Build()).Error(), "it is no process any more")
}

func TestMonitorTellsSentFromInside(t *testing.T) {
	s := testredis.Start(t)
	client := connect(t, s.Addr())
	m := expect.NoError(server.StartMonitor(s)).In(t)
	defer func() { require.NoError(t, m.Close()) }()
	command(t, client, "EVAL", "redis.call('SET', 'a', 'lua]') return redis.call('GET', 'a')", "0")
	command(t, client, "GET", "b] \"PING\"")
	command(t, client, "PING")
	require.Equal(t, server.Calls{Sent: 2, Inside: 2}, expect.NoError(m.Count()).In(t))
	require.Zero(t, expect.NoError(m.Count()).In(t), "since the last count")
}

func TestCostsGrow(t *testing.T) {
	s := testredis.Start(t)
	before := server.Used(s)
	command(t, connect(t, s.Addr()), "SET", "key", strings.Repeat("x", 1<<20))
	require.Greater(t, server.Used(s), before+1<<20)
	require.Positive(t, server.CPU(s))
}

// What is counted is what was asked for since the last call: more for more commands, and next to nothing for none.
func TestInstructions(t *testing.T) {
	testredis.Require(t)
	s := server.StartCounted(t, testredis.Binaries()[0])
	count := func(flushes int) int64 {
		expect.NoError(s.Instructions()).In(t)
		for range flushes {
			_, err := s.Command("FLUSHALL")
			require.NoError(t, err)
		}
		return expect.NoError(s.Instructions()).In(t)
	}
	count(1) // the first one allocates
	few, many := count(20), count(200)
	require.Positive(t, few)
	require.Greater(t, many, 3*few)
}

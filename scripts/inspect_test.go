package scripts_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

func TestInspectShowsTheLockAndChangesNothing(t *testing.T) {
	everywhere(t, func(b *bed) {
		free := b.run(call{scripts.Inspect, lockKeys("n"), nil})
		require.Equal(b.t, []any{"", int64(0), []any{}, []any{}}, free[1:])
		require.Empty(b.t, b.dump())

		token := b.run(acquire("01", "A", "w", 60_000, 60_000, "a"))[1]
		b.run(join("02", "A", "w", 90_000, 60_000))
		b.run(acquire("03", "B", "r", 60_000, 60_000, "a"))
		b.run(acquire("04", "C", "w", 60_000, 60_000, "a"))
		before := b.repeatableState(b.dump())
		for _, keys := range [][]string{lockKeys("n"), lockKeys("n")[:1]} {
			reply := b.run(call{scripts.Inspect, keys, nil})
			require.Equal(b.t, []any{"w", token}, reply[1:3])
			holders, waiters := reply[3].([]any), reply[4].([]any)
			require.Len(b.t, holders, 2)
			require.Len(b.t, waiters, 2)
			for i, want := range [][]any{{"01", "A", "w", "client", int64(2)}, {"02", "A", "w", "client", int64(2)}} {
				h := holders[i].([]any)
				require.Equal(b.t, want, h[:5])
				require.InDelta(b.t, []int64{60_000, 90_000}[i], h[5], 5000)
				require.InDelta(b.t, 0, h[6], 5000)
				require.Equal(b.t, []any{token, []string{"meta of it", "meta"}[i]}, h[7:])
			}
			require.Equal(b.t, []any{"03", "B", "r", "client"}, waiters[0].([]any)[:4])
			require.Equal(b.t, []any{"04", "C", "w", "client"}, waiters[1].([]any)[:4])
			require.Equal(b.t, "meta of it", waiters[1].([]any)[5])
		}
		require.Equal(b.t, before, b.repeatableState(b.dump()))
	})
}

// What has expired is not shown, though nobody has purged it yet.
func TestInspectShowsNothingExpired(t *testing.T) {
	inFakeTime(t, func(b *bed) {
		b.run(acquire("01", "A", "r", 100, 100, "a"))
		b.run(acquire("02", "B", "r", 1000, 100, "a"))
		b.run(acquire("03", "C", "w", 1000, 100, "a"))
		b.run(acquire("04", "D", "w", 1000, 500, "a"))
		b.pass(100 * time.Millisecond)
		reply := b.run(call{scripts.Inspect, lockKeys("n"), nil})
		require.Equal(b.t, "02", reply[3].([]any)[0].([]any)[0])
		require.Len(b.t, reply[3], 1)
		require.Equal(b.t, "04", reply[4].([]any)[0].([]any)[0])
		require.Len(b.t, reply[4], 1)
	})
}

// An operator runs the file itself, while the application is down.
func TestInspectRunsFromRedisCLI(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		const missing = "no redis-cli on PATH: install the Debian package redis-tools"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	onServers(t, func(b *bed) {
		b.run(on("or ders", scripts.Acquire, "01", "A", "r", "client", 60_000, claim, "a", "host:1"))
		token := b.run(on("or ders", scripts.Acquire, "02", "B", "r", "client", 60_000, claim, "a", "host:2"))[1]
		b.run(on("or ders", scripts.Acquire, "03", "C", "w", "client", 60_000, 60_000, "a", "host:3"))
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, cli, "-p", strconv.Itoa(b.server.Port()),
			"--eval", "inspect.lua", "fencelock:{or ders}").CombinedOutput()
		require.NoError(t, err, string(out))
		for _, shown := range []string{"\nr\n", texts([]any{token})[0], "01\nA\nr\n", "host:1", "02\nB\nr\n", "host:2", "03\nC\nw\n", "host:3"} {
			require.Contains(t, string(out), shown)
		}
	})
}

func (b *bed) subscribe(c rueidis.DedicatedClient, channel string, heard chan<- string) {
	b.t.Helper()
	c.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { heard <- m.Message }})
	require.NoError(b.t, c.Do(context.Background(), c.B().Subscribe().Channel(channel).Build()).Error())
}

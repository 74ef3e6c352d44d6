package testredis_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func set(c rueidis.Client, key, val string) rueidis.Completed {
	return c.B().Set().Key(key).Value(val).Build()
}

func get(c rueidis.Client, key string) rueidis.Completed {
	return c.B().Get().Key(key).Build()
}

func TestMiniCrashLosesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		require.NoError(t, client.Do(t.Context(), set(client, "k", "v")).Error())

		mini.Crash()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, client.Do(ctx, set(client, "k", "w")).Error())

		mini.Recover()
		require.True(t, rueidis.IsRedisNil(client.Do(t.Context(), get(client, "k")).Error()))
	})
}

func TestMiniSkewMovesItsClockAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		seconds := func() int64 {
			now, err := client.Do(t.Context(), client.B().Time().Build()).AsStrSlice()
			require.NoError(t, err)
			at, err := time.ParseDuration(now[0] + "s")
			require.NoError(t, err)
			return int64(at / time.Second)
		}
		px := func(key string, ms int64) {
			require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value("v").PxMilliseconds(ms).Build()).Error())
		}
		alive := func(key string) bool {
			n, err := client.Do(t.Context(), client.B().Exists().Key(key).Build()).AsInt64()
			require.NoError(t, err)
			return n == 1
		}

		px("long", 60_000)
		px("short", 2_000)
		mini.Skew(3 * time.Second)
		require.Equal(t, time.Now().Unix()+3, seconds())
		require.False(t, alive("short"), "a step forward expires what it passes")
		time.Sleep(10 * time.Second)
		require.Equal(t, time.Now().Unix()+3, seconds())

		mini.Skew(-5 * time.Second)
		require.Equal(t, time.Now().Unix()-5, seconds())
		mini.Skew(0)
		require.Equal(t, time.Now().Unix(), seconds())
		require.True(t, alive("long"))
	})
}

// A write's reply waits for the log, and the messages of the write do not. What the log loses is gone after a failover.
func TestMiniLosesWhatItHasNotCommitted(t *testing.T) {
	const script = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('PUBLISH', 'news', ARGV[1]) return ARGV[1]"
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			mini := testredis.NewMini(t)
			client := mini.Client(t)
			write := func(value string) error {
				return client.Do(t.Context(), client.B().Eval().Script(script).Numkeys(1).Key("k").Arg(value).Build()).Error()
			}
			require.NoError(t, write("before"))
			heard := make(chan string, 9)
			go func() {
				_ = mini.Client(t).Receive(t.Context(), client.B().Subscribe().Channel("news").Build(),
					func(m rueidis.PubSubMessage) { heard <- m.Message })
			}()
			synctest.Wait()

			mini.StallCommits()
			written := make(chan error, 1)
			go func() { written <- write("after") }()
			require.Equal(t, "after", <-heard)
			synctest.Wait()
			require.Empty(t, written)
			late := mini.NewLink().Client(t)
			require.NoError(t, late.Do(t.Context(), late.B().Ping().Build()).Error(), "a PING writes nothing")

			if lost {
				mini.LoseCommits()
				require.Error(t, <-written)
				require.Equal(t, "before", must(mini.Miniredis().Get("k")))
				require.NoError(t, write("again"))
				return
			}
			mini.ResumeCommits()
			require.NoError(t, <-written)
			require.Equal(t, "after", must(mini.Miniredis().Get("k")))
		})
	}
}

func must(value string, err error) string {
	if err != nil {
		return err.Error()
	}
	return value
}

package testredis_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
)

func set(c rueidis.Client, key, val string) rueidis.Completed {
	return c.B().Set().Key(key).Value(val).Build()
}

func get(c rueidis.Client, key string) rueidis.Completed {
	return c.B().Get().Key(key).Build()
}

func TestMiniExpiresKeysInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		ctx := t.Context()
		require.NoError(t, client.Do(ctx, client.B().Set().Key("k").Value("v").PxMilliseconds(1500).Build()).Error())

		time.Sleep(1499 * time.Millisecond)
		require.NoError(t, client.Do(ctx, get(client, "k")).Error())
		time.Sleep(time.Millisecond)
		require.True(t, rueidis.IsRedisNil(client.Do(ctx, get(client, "k")).Error()))

		require.Equal(t, 1, mini.Calls("set"))
		require.Equal(t, 2, mini.Calls("GET"))
		mini.ResetCalls()
		require.Zero(t, mini.Calls("GET"))
	})
}

func TestMiniCountsNoCommandsOfScripts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		script := rueidis.NewLuaScript(`return redis.call('INCR', KEYS[1])`)
		n, err := script.Exec(t.Context(), client, []string{"n"}, nil).AsInt64()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.Equal(t, 1, mini.Calls("EVALSHA"))
		require.Equal(t, 1, mini.Calls("EVAL"))
		require.Zero(t, mini.Calls("INCR"))

		mini.FlushScripts()
		require.NoError(t, script.Exec(t.Context(), client, []string{"n"}, nil).Error())
		require.Equal(t, 2, mini.Calls("EVAL"))
	})
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

func TestMiniFrozenRunsCommandsAfterThaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		mini.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, client.Do(ctx, set(client, "k", "v")).Error(), context.DeadlineExceeded)
		require.False(t, mini.Miniredis().Exists("k"))

		mini.Thaw()
		synctest.Wait()
		require.True(t, mini.Miniredis().Exists("k"), "the command was under way and runs late")
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

package testredis_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func TestRollbackBringsBackEveryKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		redis := mini.Miniredis()
		require.NoError(t, redis.Set("string", "a\r\n{}"))
		redis.HSet("hash", "f", "1", "g", "")
		_, err := redis.Push("list", "x", "y", "x")
		require.NoError(t, err)
		_, err = redis.SetAdd("set", "m", "n")
		require.NoError(t, err)
		_, err = redis.ZAdd("zset", 1789012345678901, "late")
		require.NoError(t, err)
		_, err = redis.ZAdd("zset", -1.5, "early")
		require.NoError(t, err)
		redis.SetTTL("hash", time.Minute)
		redis.SetTTL("string", time.Second)
		before := redis.Dump()
		snapshot := mini.Snapshot()

		redis.FlushAll()
		require.NoError(t, redis.Set("new", "v"))
		mini.Rollback(snapshot)
		require.Equal(t, before, redis.Dump())
		require.Equal(t, time.Minute, redis.TTL("hash"))
		require.Zero(t, redis.TTL("list"))

		time.Sleep(30 * time.Second)
		mini.Rollback(snapshot)
		require.False(t, redis.Exists("string"), "it has expired meanwhile")
		require.Equal(t, 30*time.Second, redis.TTL("hash"))

		mini.Rollback(&testredis.Snapshot{})
		require.Empty(t, redis.Keys())
	})
}

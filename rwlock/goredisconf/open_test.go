package goredisconf_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/goredisconf"
	"github.com/seed74116694/fencelock/rwlock/goredisconf/valkeyconf"
)

// A locker of the options of a client that the service has: its keys are in the same DB, and Close leaves no
// connection. It has one connection, and one for messages once it waits. The options that are ignored are logged.
func TestOpen(t *testing.T) {
	server := testredis.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 3, PoolSize: 7})
	defer func() { require.NoError(t, rdb.Close()) }()
	require.NoError(t, rdb.Ping(t.Context()).Err())
	for library, open := range map[string]func(...rwlock.Option) (*rwlock.Locker, error){
		"go-redis": func(opts ...rwlock.Option) (*rwlock.Locker, error) { return goredisconf.Open(rdb.Options(), opts...) },
		"valkey-go": func(opts ...rwlock.Option) (*rwlock.Locker, error) {
			return valkeyconf.Open(valkey.ClientOption{
				InitAddress: []string{server.Addr()}, SelectDB: 3, ForceSingleClient: true, DisableCache: true,
			}, opts...)
		},
	} {
		t.Run(library, func(t *testing.T) {
			before := clients(t, server)
			var log bytes.Buffer
			locker := expect.NoError(open(rwlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))).In(t)
			require.Contains(t, log.String(), "options of "+library)
			require.Regexp(t, `options="?.*(PoolSize|DisableCache)`, log.String())
			require.NoError(t, locker.Do(t.Context(), "invoice:7", func(ctx context.Context) error {
				require.EqualValues(t, 1, rdb.Exists(ctx, "fencelock:{invoice:7}").Val())
				return nil
			}))
			require.LessOrEqual(t, clients(t, server)-before, int64(2))
			require.NoError(t, locker.Close())
			require.Eventually(t, func() bool { return clients(t, server) <= before }, time.Minute, time.Millisecond)

			_, err := open(rwlock.WithPrefix(""), rwlock.WithTTL(-1))
			require.ErrorIs(t, err, rwlock.ErrOption)
			require.Eventually(t, func() bool { return clients(t, server) <= before }, time.Minute, time.Millisecond)
		})
	}
	_, err := goredisconf.Open((*redis.Options)(nil))
	require.ErrorIs(t, err, rwlock.ErrOption)
	_, err = valkeyconf.Open(valkey.ClientOption{})
	require.ErrorIs(t, err, rwlock.ErrOption)
}

// Nothing is logged where nothing is ignored.
func TestOpenIsSilentWhereAllIsTaken(t *testing.T) {
	server := testredis.Start(t)
	var log bytes.Buffer
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	logger := rwlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
	locker := expect.NoError(goredisconf.Open(rdb.Options(), logger)).In(t)
	require.NoError(t, locker.Close())
	require.NoError(t, rdb.Close())
	require.Empty(t, log.String())

	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:0"}, MaxRedirects: 9})
	_, _, ignored, err := goredisconf.From(cluster.Options())
	require.NoError(t, err)
	require.NoError(t, cluster.Close())
	require.Equal(t, []string{"MaxRedirects"}, ignored)
}

func clients(t *testing.T, server *testredis.Server) int64 {
	t.Helper()
	return int64(len(bytes.Split([]byte(expect.NoError(server.Command("CLIENT", "LIST")).In(t).(string)), []byte("\n"))))
}

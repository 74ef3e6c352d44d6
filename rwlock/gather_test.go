package rwlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// countingConn counts the writes that go out.
type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// What many goroutines ask for at once leaves in few writes.
func TestManyCallersShareWrites(t *testing.T) {
	const callers, pairs = 64, 200
	var writes atomic.Int64
	server := testredis.Start(t)
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			conn, err := d.DialContext(ctx, "tcp", addr)
			return countingConn{conn, &writes}, err
		},
	})
	require.NoError(t, err)
	defer client.Close()
	locker, err := rwlock.New(client)
	require.NoError(t, err)
	defer locker.Close()

	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range pairs {
				lease, err := locker.Lock(t.Context(), strconv.Itoa(i))
				if err == nil {
					err = lease.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	const commands = 2 * callers * pairs
	t.Logf("%d commands in %d writes", commands, writes.Load())
	require.Less(t, writes.Load(), int64(commands/2))
}

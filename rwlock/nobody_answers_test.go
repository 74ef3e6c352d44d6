package rwlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// The port is open and nobody answers. Every call ends with its context, though the client dials without end.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel() // it waits for a client that dials in vain
	const limit = 100 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	require.NoError(t, err)
	defer func() { _ = listener.Close() }() // which ends the dialling
	addr := listener.Addr().String()
	var dials atomic.Int32
	client, err := dial(t, addr, rueidis.ClientOption{
		Dialer: net.Dialer{Timeout: time.Hour},
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if dials.Add(1) == 1 { // that of Dial itself, which would wait for it
				return nil, context.DeadlineExceeded
			}
			return d.DialContext(ctx, "tcp", addr)
		},
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	locker := testkit.New(t, client, rwlock.WithReleaseTimeout(limit))
	calls := map[string]func(context.Context) error{"Inspect": func(ctx context.Context) error {
		_, err := locker.Inspect(ctx, "orders")
		return err
	}}
	for how, take := range acquisitions(locker) {
		calls[how] = func(ctx context.Context) error {
			_, err := take(ctx, "orders")
			require.ErrorIs(t, err, context.DeadlineExceeded, how)
			require.True(t, rwlock.Indeterminate(err), how)
			return err
		}
	}
	for how, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		over := time.AfterFunc(testkit.Patience, func() { panic(how + " goes on after its context has ended") })
		couldNotAsk(t, call(ctx), addr, "no reply in ")
		over.Stop()
		cancel()
	}
	require.Greater(t, dials.Load(), int32(1))
}

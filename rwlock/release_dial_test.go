package rwlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
)

// A dial has a time of its own: a context below that of the release. It runs out when the release is over, for a timer
// may fire in the very moment in which it is stopped.
func TestTheTimeOfADialRunsOutAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		option := link.Option()
		dial, dials := option.DialCtxFn, 0
		option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			dials++
			_, cancel := context.WithTimeout(ctx, time.Second)
			t.Cleanup(cancel)
			return dial(ctx, addr, d, c)
		}
		locker := testkit.Dial(t, "", option)
		for range 3 {
			lease, err := locker.TryLock(t.Context(), "n")
			require.NoError(t, err)
			time.Sleep(200 * time.Millisecond) // the connection has not answered of late
			before := dials
			link.Cut()
			synctest.Wait()
			require.NoError(t, lease.Release(t.Context()))
			require.Greater(t, dials, before, "the release dials")
			time.Sleep(2 * time.Second)
		}
	})
}

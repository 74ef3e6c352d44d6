package peer_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/chaos/peer"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each library excludes a second caller until the release, on one server or on several masters, and shows what a guard
// may ask for.
func TestLibrariesExclude(t *testing.T) {
	servers := []string{testredis.Start(t).Addr(), testredis.Start(t).Addr(), testredis.Start(t).Addr()}
	for _, lib := range peer.Libraries() {
		addrs := servers[:1]
		if lib.Quorum {
			addrs = servers
		}
		t.Run(lib.Name, func(t *testing.T) {
			first, second := open(t, lib, addrs), open(t, lib, addrs)
			hold, err := first.Lock(t.Context(), lib.Name)
			require.NoError(t, err)
			require.True(t, hold.Held(t.Context()))
			waiting, stop := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, stop)
			other, err := second.Lock(waiting, lib.Name)
			if lib.Name == peer.None {
				require.NoError(t, err)
				require.NotEqual(t, hold.Value(), other.Value())
				return
			}
			require.Error(t, err)
			require.NoError(t, hold.Release(t.Context()))
			other, err = second.Lock(t.Context(), lib.Name)
			require.NoError(t, err)
			if hold.Token() > 0 {
				require.Greater(t, other.Token(), hold.Token())
			}
			if hold.Value() != "" {
				require.NotEqual(t, hold.Value(), other.Value())
			}
			require.NoError(t, other.Release(t.Context()))
		})
	}
	_, err := peer.Named("mutex")
	require.ErrorContains(t, err, `"mutex"`)
}

func open(t *testing.T, lib peer.Library, addrs []string) peer.Locks {
	t.Helper()
	locks, err := lib.Open(peer.Options{Addrs: addrs, TTL: 10 * time.Second, Dial: func(
		ctx context.Context, addr string,
	) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}})
	require.NoError(t, err)
	t.Cleanup(locks.Close)
	return locks
}

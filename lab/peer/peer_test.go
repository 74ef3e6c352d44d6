package peer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/peer"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-peer")
	goleak.VerifyTestMain(m)
}

func addrs(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		all = append(all, testredis.Start(t).Addr())
	}
	return all
}

func open(t *testing.T, lib peer.Library, servers []string) peer.Peer {
	t.Helper()
	p := expect.NoError(lib.Open(peer.Options{Addrs: servers, TTL: peer.TTL, ClientName: "test"})).In(t)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// Whatever is no floor excludes others, and lets them in afterwards; whatever queues does so without being asked again.
func TestPeersAreLocks(t *testing.T) {
	servers := addrs(t, 1)
	for _, lib := range peer.Select(func(l peer.Library) bool { return !l.Floor || l.Queues }) {
		t.Run(lib.Name, func(t *testing.T) {
			one, other := open(t, lib, servers), open(t, lib, servers)
			held := expect.NoError(one.Lock(t.Context(), lib.Name)).In(t)
			waiting, giveUp := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer giveUp()
			_, err := other.Lock(waiting, lib.Name)
			require.Error(t, err, "it is held")
			require.ErrorIs(t, waiting.Err(), context.DeadlineExceeded)
			if lib.Floor {
				return // a waiter of the bare queue cannot give up its place
			}
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, expect.NoError(other.Lock(t.Context(), lib.Name)).In(t).Release(t.Context()))
		})
	}
}

func TestBareQueueHandsOver(t *testing.T) {
	servers := addrs(t, 1)
	lib := peer.Named(peer.FloorQueue)[0]
	one, other := open(t, lib, servers), open(t, lib, servers)
	held := expect.NoError(one.Lock(t.Context(), "name")).In(t)
	got := make(chan error, 1)
	go func() {
		next, err := other.Lock(t.Context(), "name")
		if err == nil {
			err = next.Release(t.Context())
		}
		got <- err
	}()
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, <-got)
}

func TestPeersOverAQuorum(t *testing.T) {
	servers := addrs(t, 3)
	for _, lib := range peer.Select(func(l peer.Library) bool { return l.Quorum }) {
		t.Run(lib.Name, func(t *testing.T) {
			p := open(t, lib, servers)
			for range 2 {
				require.NoError(t, expect.NoError(p.Lock(t.Context(), lib.Name)).In(t).Release(t.Context()))
			}
		})
	}
}

// Whatever keeps locks outlives their TTL, by itself or by extensions, and knows when it does not.
func TestPeersKeepTheirLocks(t *testing.T) {
	const ttl = 2 * time.Second
	servers := addrs(t, 1)
	for _, lib := range peer.Select(func(l peer.Library) bool { return l.Keeps }) {
		t.Run(lib.Name, func(t *testing.T) {
			p := expect.NoError(lib.Open(peer.Options{Addrs: servers, TTL: ttl})).In(t)
			defer func() { require.NoError(t, p.Close()) }()
			held := expect.NoError(p.Lock(t.Context(), lib.Name)).In(t)
			kept, byItself := held.(peer.Kept)
			extender, byUser := held.(peer.Extender)
			require.True(t, byItself != byUser, "one of the two")
			if byUser {
				require.NoError(t, extender.Extend(t.Context()))
				require.NoError(t, held.Release(t.Context()))
				require.Error(t, extender.Extend(t.Context()))
				return
			}
			require.False(t, kept.Lost())
			require.NoError(t, held.Release(t.Context()))
		})
	}
}

package outage_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/outage"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A server that was replaced while it failed is forgotten with the next one that fails, and told of no more.
func TestOutagesForgetReplacedServers(t *testing.T) {
	var outages outage.Set
	tell := func(n *transport.Node, now time.Duration) bool {
		due, _ := outages.Due(n, now, 0, new(outage.Log))
		return due
	}
	client := testredis.NewMini(t).Client(t)
	server := func() (n *transport.Node, end func()) {
		life, end := context.WithCancel(t.Context())
		return transport.NewMaster(&transport.Config{Life: life, Clock: clock.System()}, 0, client).At(""), end
	}
	stays, _ := server()
	require.True(t, tell(stays, 0))
	var last *transport.Node
	for range 5 {
		n, end := server()
		require.True(t, tell(n, 0))
		require.False(t, tell(n, 0))
		require.True(t, last == nil || !outages.Has(last))
		last = n
		end()
	}
	require.False(t, tell(stays, 0))
	require.True(t, tell(stays, time.Second))
	require.False(t, tell(stays, 2*time.Second))
}

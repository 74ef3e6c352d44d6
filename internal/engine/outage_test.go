package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// A server that was replaced while it failed is forgotten with the next one that fails, and told of no more.
func TestOutagesForgetReplacedServers(t *testing.T) {
	var outages engine.Outages
	client := testredis.NewMini(t).Client(t)
	server := func() (n *transport.Node, end func()) {
		life, end := context.WithCancel(t.Context())
		return transport.NewMaster(&transport.Config{Life: life, Clock: clock.System()}, 0, client).At(""), end
	}
	stays, _ := server()
	require.True(t, outages.Tell(stays, 0))
	for range 5 {
		n, end := server()
		require.True(t, outages.Tell(n, 0))
		require.False(t, outages.Tell(n, 0))
		require.Equal(t, 2, outages.Len())
		end()
	}
	require.False(t, outages.Tell(stays, 0))
	require.True(t, outages.Tell(stays, time.Second))
	require.False(t, outages.Tell(stays, 2*time.Second))
}

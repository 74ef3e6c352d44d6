package redisguard_test

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
)

// startCluster returns a client of a new Cluster.
func startCluster(t *testing.T) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{startNodes(t)[0].Addr()},
		DisableCache: true,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// startNodes starts three masters that share the slots.
func startNodes(t *testing.T) []*testredis.Server {
	t.Helper()
	testredis.Require(t)
	return testredis.StartCluster(t, testredis.Binaries()[0], 0).Nodes()
}

func command(t *testing.T, node *testredis.Server, args ...string) any {
	t.Helper()
	reply, err := node.Command(args...)
	require.NoError(t, err)
	return reply
}

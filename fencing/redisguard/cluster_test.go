package redisguard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
)

const slots = 16384

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
	const masters = 3
	var nodes []*testredis.Server
	for range masters {
		nodes = append(nodes, testredis.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
	}
	for i, node := range nodes {
		command(t, node, "CLUSTER", "ADDSLOTSRANGE",
			fmt.Sprint(i*slots/masters), fmt.Sprint((i+1)*slots/masters-1))
		command(t, node, "CLUSTER", "MEET", "127.0.0.1", fmt.Sprint(nodes[0].Port()))
	}
	for _, node := range nodes {
		awaitCluster(t, node)
	}
	return nodes
}

// awaitCluster returns when the node knows an owner of every slot. A node says so
// to who asks only.
func awaitCluster(t *testing.T, node *testredis.Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		info, ok := command(t, node, "CLUSTER", "INFO").(string)
		return ok && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
	}, 20*time.Second, 20*time.Millisecond)
}

func command(t *testing.T, node *testredis.Server, args ...string) any {
	t.Helper()
	reply, err := node.Command(args...)
	require.NoError(t, err)
	return reply
}

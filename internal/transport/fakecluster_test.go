package transport_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// fakeCluster is several servers in fake time that share the slots: each refuses what is not its own.
type fakeCluster struct {
	rueidis.Client // any of them
	t              testing.TB
	minis          []*testredis.Mini
	clients        []rueidis.Client

	mu     sync.Mutex
	owners [16384]int
	hidden map[string]bool // servers that the client of the Cluster has not connected to
	asked  atomic.Int64    // how often for the slots
	routed atomic.Int64    // calls that were left to the client of the Cluster
}

// newFakeCluster gives each of n servers as many slots as the others.
func newFakeCluster(t testing.TB, n int) *fakeCluster {
	c := &fakeCluster{t: t}
	for slot := range c.owners {
		c.owners[slot] = slot * n / len(c.owners)
	}
	for i := range n {
		mini := testredis.NewMini(t)
		mini.SetAddr(c.addr(i))
		mini.Miniredis().Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
			return c.before(i, peer, cmd, args)
		})
		c.minis, c.clients = append(c.minis, mini), append(c.clients, dial(t, mini.Option()))
	}
	c.Client = c.clients[0]
	return c
}

func (c *fakeCluster) addr(i int) string { return "10.0.0." + strconv.Itoa(i) + ":6379" }

// before answers in a server's stead what a node of a cluster answers otherwise.
func (c *fakeCluster) before(i int, peer *server.Peer, cmd string, args []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case cmd == "CLUSTER" && strings.EqualFold(args[0], "slots"):
		c.asked.Add(1)
		c.writeSlots(peer)
		return true
	case (cmd == "EVALSHA" || cmd == "EVAL") && args[1] != "0":
		slot := transport.SlotOf(args[2])
		if owner := c.owners[slot]; owner != i {
			peer.WriteError(fmt.Sprintf("MOVED %d %s", slot, c.addr(owner)))
			return true
		}
	}
	return false
}

func (c *fakeCluster) writeSlots(peer *server.Peer) {
	var starts []int
	for slot, owner := range c.owners {
		if slot == 0 || owner != c.owners[slot-1] {
			starts = append(starts, slot)
		}
	}
	peer.WriteLen(len(starts))
	for i, first := range starts {
		last := len(c.owners) - 1
		if i+1 < len(starts) {
			last = starts[i+1] - 1
		}
		peer.WriteLen(3)
		peer.WriteInt(first)
		peer.WriteInt(last)
		peer.WriteLen(3)
		host, _, _ := strings.Cut(c.addr(c.owners[first]), ":")
		peer.WriteBulk(host)
		peer.WriteInt(6379)
		peer.WriteBulk("id")
	}
}

// hide sets which servers the client of the Cluster has not connected to.
func (c *fakeCluster) hide(servers ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden = make(map[string]bool)
	for _, i := range servers {
		c.hidden[c.addr(i)] = true
	}
}

// move gives all slots of one server to another.
func (c *fakeCluster) move(from, to int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot, owner := range c.owners {
		if owner == from {
			c.owners[slot] = to
		}
	}
}

// client is that of the owner of a command's slot, as a client of a cluster routes it.
func (c *fakeCluster) client(cmd rueidis.Completed) rueidis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routed.Add(1)
	args := cmd.Commands()
	return c.clients[c.owners[transport.SlotOf(args[3])]]
}

func (c *fakeCluster) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return c.client(cmd).Do(ctx, cmd)
}

func (c *fakeCluster) DoMulti(ctx context.Context, commands ...rueidis.Completed) (all []rueidis.RedisResult) {
	for _, cmd := range commands {
		all = append(all, c.Do(ctx, cmd))
	}
	return all
}

func (c *fakeCluster) Nodes() map[string]rueidis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := make(map[string]rueidis.Client)
	for i, client := range c.clients {
		if !c.hidden[c.addr(i)] {
			nodes[c.addr(i)] = client
		}
	}
	return nodes
}

func (c *fakeCluster) Mode() rueidis.ClientMode { return rueidis.ClientModeCluster }

// lockOn returns the number of a lock in a slot of that server.
func (c *fakeCluster) lockOn(i int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range 1000 {
		if c.owners[transport.SlotOf(keysOf(strconv.Itoa(id))[0])] == i {
			return id
		}
	}
	require.Fail(c.t, "no lock found", "server %d", i)
	return -1
}

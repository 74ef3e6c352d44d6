//go:build unix

package testredis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/freeport"
)

// Slots is the number of slots of a Cluster.
const Slots = 16384

// clusterMasters is the number of masters of a Cluster: the least that can agree on a failover.
const clusterMasters = 3

// manualFailover is the time after which a replica has given up a requested failover that did not succeed: 5 s, plus
// one.
const manualFailover = 6 * time.Second

// Cluster is three masters that share the slots, each with the requested number of replicas. Its nodes consider another
// node failed after 5 s, so that a busy machine causes no failover. NodeTimeout changes that.
type Cluster struct {
	t         testing.TB
	nodes     []*clusterNode
	migrating *sync.Mutex // nodes that migrate to each other at once wait for each other
	assigning *sync.Mutex // see Move.End
}

type clusterNode struct {
	*Server
	bus int // its second port
	id  string
}

// StartCluster starts the nodes with the given arguments added, and returns when all of them know each other and serve
// every slot. A new Cluster of Redis needs two seconds for that, regardless of its size.
func StartCluster(t testing.TB, binary string, replicas int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, migrating: new(sync.Mutex), assigning: new(sync.Mutex)}
	var servers []*Server
	for range clusterMasters * (1 + replicas) {
		node := newClusterNode(t, binary, args)
		c.nodes, servers = append(c.nodes, node), append(servers, node.Server)
	}
	beginAll(t, servers)
	for i, node := range c.nodes {
		node.id = c.must(node.Server, "CLUSTER", "MYID").(string)
		c.must(node.Server, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < clusterMasters {
			c.must(node.Server, "CLUSTER", "ADDSLOTSRANGE",
				strconv.Itoa(i*Slots/clusterMasters), strconv.Itoa((i+1)*Slots/clusterMasters-1))
		}
		for _, met := range c.nodes[:i] {
			c.must(node.Server, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(met.port), strconv.Itoa(met.bus))
		}
	}
	c.awaitAll("knows all others", func(node *clusterNode) bool { return len(c.known(node)) == len(c.nodes) })
	for i, node := range c.nodes[clusterMasters:] {
		c.must(node.Server, "CLUSTER", "REPLICATE", c.nodes[i%clusterMasters].id)
	}
	c.WaitReady()
	return c
}

func newClusterNode(t testing.TB, binary string, args []string) *clusterNode {
	node := &clusterNode{Server: newServer(t, binary)}
	node.prepare = func() (err error) {
		node.bus, err = freeport.Find()
		node.args = append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--cluster-port", strconv.Itoa(node.bus),
			"--cluster-allow-replica-migration", "no",
			"--cluster-replica-validity-factor", "0", // else a replica whose first elections fail never stands again
		}, args...)
		return err
	}
	return node
}

// For returns the same Cluster for a subtest, so that a failure ends the subtest. A parallel subtest needs it, because
// a subtest that ends its parent instead ends the test binary, and with it all other tests.
func (c *Cluster) For(t testing.TB) *Cluster {
	view := *c
	view.t = t
	return &view
}

// Option returns what a client needs to find the Cluster: its first node.
func (c *Cluster) Option() rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{c.nodes[0].Addr()}}
}

// Nodes returns all nodes; the first three were the masters when they were started.
func (c *Cluster) Nodes() (all []*Server) {
	for _, node := range c.nodes {
		all = append(all, node.Server)
	}
	return all
}

// Masters returns the nodes that have slots, as the first node that runs sees it.
func (c *Cluster) Masters() (all []*Server) {
	c.t.Helper()
	for _, line := range c.known(c.witness()) {
		if node := c.byID(line.id); line.master() && len(line.slots) > 0 && !line.failed() {
			all = append(all, node.Server)
		}
	}
	return all
}

// Command runs a command on the node that has its key.
func (c *Cluster) Command(args ...string) (any, error) {
	node := c.witness().Server
	for {
		reply, err := node.Command(args...)
		if err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
			return reply, err
		}
		if node = c.byAddr(strings.Fields(err.Error())[2]); node == nil {
			return nil, err
		}
	}
}

// WaitReady returns when every running node serves all slots and has the same slot owners in the same epochs, and each
// replica has caught up with its master.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	await(c.t, "all nodes serve every slot and agree on who has it", c.agree)
	c.awaitAll("has caught up with its master", func(node *clusterNode) bool {
		link, replica := node.Info("replication")["master_link_status"]
		return !replica || link == "up"
	})
}

// agree reports whether all running nodes report the same slots. It asks them one after the other.
func (c *Cluster) agree() bool {
	first := ""
	for _, node := range c.nodes {
		if !node.answers() {
			continue
		}
		state, err := node.Command("CLUSTER", "INFO")
		text, _ := state.(string)
		owners := c.owners(node)
		if first == "" {
			first = owners
		}
		if err != nil || !strings.Contains(text, "cluster_state:ok") || owners == "" || owners != first {
			return false
		}
	}
	return true
}

// owners returns the slots of each owner and their epoch, as a node reports them, in a form that can be compared.
func (c *Cluster) owners(node *clusterNode) string {
	var all []string
	for _, line := range c.known(node) {
		if len(line.slots) == 0 {
			line.epoch = "" // without meaning: a dead node may not have sent it to all other nodes
		}
		all = append(all, fmt.Sprint(line.id, line.replicates, line.epoch, line.slots))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// NodeTimeout sets the time without an answer after which the nodes consider another node failed.
func (c *Cluster) NodeTimeout(d time.Duration) {
	c.t.Helper()
	for _, node := range c.nodes {
		c.must(node.Server, "CONFIG", "SET", "cluster-node-timeout", strconv.FormatInt(d.Milliseconds(), 10))
	}
}

// ReplicaOf returns a replica of a master that runs, nil if there is none.
func (c *Cluster) ReplicaOf(master *Server) *Server {
	c.t.Helper()
	for _, line := range c.known(c.witness()) {
		node := c.byID(line.id)
		if of := c.byID(line.replicates); of != nil && of.Server == master && node.answers() {
			return node.Server
		}
	}
	return nil
}

// Failover makes a replica of a running master take its place, as an operator does, and returns the replica when all
// nodes know it.
func (c *Cluster) Failover(master *Server) *Server {
	c.t.Helper()
	replica := c.ReplicaOf(master)
	if replica == nil {
		c.t.Fatalf("testredis: %s has no replica", master.Addr())
	}
	var asked time.Time
	await(c.t, replica.Addr()+" takes the place of "+master.Addr(), func() bool {
		if time.Since(asked) > manualFailover {
			if _, err := replica.Command("CLUSTER", "FAILOVER"); err == nil {
				asked = time.Now()
			}
		}
		return replica.role() == "master"
	})
	return c.AwaitTakeover(master)
}

// AwaitTakeover returns the new owner of the slots that a master lost, when all running nodes agree on it.
func (c *Cluster) AwaitTakeover(of *Server) (by *Server) {
	c.t.Helper()
	shard := slices.IndexFunc(c.nodes, func(node *clusterNode) bool { return node.Server == of }) % clusterMasters
	slot := shard * Slots / clusterMasters
	c.awaitAll("has another master than "+of.Addr(), func(node *clusterNode) bool {
		owner := c.ownerBy(node, slot)
		if owner != nil && owner.Server != of {
			by = owner.Server
			return true
		}
		return node.Server == of // the failed master may never learn of the takeover
	})
	c.WaitReady()
	return by
}

// awaitAll returns when the condition holds for every running node.
func (c *Cluster) awaitAll(what string, holds func(node *clusterNode) bool) {
	c.t.Helper()
	for _, node := range c.nodes {
		if node.answers() {
			await(c.t, node.Addr()+" "+what, func() bool { return holds(node) })
		}
	}
}

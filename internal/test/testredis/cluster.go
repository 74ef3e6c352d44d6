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
)

// Slots is the number of slots of a Cluster.
const Slots = 16384

// clusterMasters is the number of masters of a Cluster: the least that can agree on a failover.
const clusterMasters = 3

const nodeTimeout = "cluster-node-timeout"

// manualFailover is the time after which a replica has given up a requested failover that did not succeed: 5 s, plus
// one.
const manualFailover = 6 * time.Second

// Cluster is three masters that share the slots, each with the requested number of replicas. Its nodes consider another
// node failed after 15 s, so that a busy machine causes no failover. NodeTimeout changes that.
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
		node.bus, err = node.reservePort()
		node.args = append([]string{
			"--cluster-enabled", "yes", "--" + nodeTimeout, "15000", "--cluster-port", strconv.Itoa(node.bus),
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
		ms := strconv.FormatInt(d.Milliseconds(), 10)
		c.must(node.Server, "CONFIG", "SET", nodeTimeout, ms)
		node.args[slices.Index(node.args, "--"+nodeTimeout)+1] = ms // for its next start
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
	slot := c.firstSlot(master)
	await(c.t, replica.Addr()+" takes the place of "+master.Addr(), func() bool {
		if replica.role() != "master" && time.Since(asked) > manualFailover {
			if _, err := replica.Command("CLUSTER", "FAILOVER"); err == nil {
				asked = time.Now()
			}
		}
		// Not before another node agrees: see claim. Such a replica steps back when it hears of its master.
		owner := c.ownerBy(c.byServer(master), slot)
		return owner != nil && owner.Server == replica
	})
	return c.AwaitTakeover(master)
}

// firstSlot returns a slot of the shard of a node, which Reshard and Move leave there if they are not told otherwise.
func (c *Cluster) firstSlot(of *Server) int {
	shard := slices.Index(c.nodes, c.byServer(of)) % clusterMasters
	return shard * Slots / clusterMasters
}

func (c *Cluster) byServer(s *Server) *clusterNode {
	return c.nodes[slices.IndexFunc(c.nodes, func(node *clusterNode) bool { return node.Server == s })]
}

// AwaitTakeover returns the new owner of the slots that a master lost, when all running nodes agree on it.
func (c *Cluster) AwaitTakeover(of *Server) (by *Server) {
	c.t.Helper()
	slot, began := c.firstSlot(of), time.Now()
	c.awaitAll("has another master than "+of.Addr(), func(node *clusterNode) bool {
		owner := c.ownerBy(node, slot)
		if owner != nil && owner.Server != of {
			by = owner.Server
			return true
		}
		if time.Since(began) > claimAgain {
			c.claim(slot, of)
			began = time.Now()
		}
		return node.Server == of // the failed master may never learn of the takeover
	})
	c.WaitReady()
	return by
}

// claimAgain is how long a takeover may last before claim.
const claimAgain = 3 * time.Second

// claim gives the successor of a master, if it considers itself the owner of the slot, the largest epoch. Redis 7.0
// needs it: a replica that was elected, was made a replica again, and loses its master within two node timeouts of that
// election counts the old votes. It takes the slots in its old epoch, which no other node accepts, and does not stand
// again.
func (c *Cluster) claim(slot int, of *Server) {
	for _, node := range c.nodes {
		if node.Server != of && node.answers() && c.ownerBy(node, slot) == node {
			_, _ = node.Command("CLUSTER", "BUMPEPOCH")
		}
	}
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

// Move is a slot that is moving from one master to another. Until End both masters serve it: the old one serves the
// keys that it still has, and the new one serves the keys that have moved, for clients that send ASKING.
type Move struct {
	c        *Cluster
	slot     string
	from, to *clusterNode
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	return int(c.must(c.witness().Server, "CLUSTER", "KEYSLOT", key).(int64))
}

// Owner returns the master that has the slot.
func (c *Cluster) Owner(slot int) *Server {
	c.t.Helper()
	owner := c.ownerBy(c.witness(), slot)
	if owner == nil {
		c.t.Fatalf("testredis: nobody has slot %d", slot)
	}
	return owner.Server
}

// Another returns a master other than the given one.
func (c *Cluster) Another(than *Server) *Server {
	c.t.Helper()
	for _, master := range c.Masters() {
		if master != than {
			return master
		}
	}
	c.t.Fatal("testredis: there is no other master")
	return nil
}

// BeginMove starts to move a slot to another master, and stops there: the keys of the slot stay where they are.
func (c *Cluster) BeginMove(slot int, to *Server) *Move {
	c.t.Helper()
	m := &Move{c: c, slot: strconv.Itoa(slot), from: c.ownerBy(c.witness(), slot)}
	for _, node := range c.nodes {
		if node.Server == to {
			m.to = node
		}
	}
	if m.from == nil || m.to == nil || m.from == m.to {
		c.t.Fatalf("testredis: slot %d cannot be moved to %s", slot, to.Addr())
	}
	c.must(m.to.Server, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.from.id)
	c.must(m.from.Server, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.to.id)
	return m
}

// Key moves one key of the slot.
func (m *Move) Key(key string) {
	m.c.t.Helper()
	m.c.migrating.Lock()
	defer m.c.migrating.Unlock()
	await(m.c.t, "the key "+key+" has moved", func() bool {
		_, err := m.from.Command("MIGRATE", "127.0.0.1", strconv.Itoa(m.to.Port()), key, "0", "4000", "REPLACE")
		if err != nil && !strings.HasPrefix(err.Error(), "IOERR") { // after IOERR the key may have moved
			m.c.t.Fatalf("testredis: MIGRATE %s: %v", key, err)
		}
		return err == nil
	})
}

// Keys moves all keys of the slot.
func (m *Move) Keys() {
	m.c.t.Helper()
	for {
		keys := m.c.must(m.from.Server, "CLUSTER", "GETKEYSINSLOT", m.slot, "100").([]any)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			m.Key(key.(string))
		}
	}
}

// End moves the remaining keys and gives the slot to its new owner. All nodes know of it when End returns.
//
// One slot is given away at a time, until all nodes agree on it and on the epoch of its new owner. The new owner takes
// a larger epoch than it knows of, without asking another node. If the old owner had a larger epoch that the new owner
// did not know of, then a message that the old owner sent before it gave up the slot would win the slot back. Neither
// would serve it then: each of the two would consider the other the owner.
func (m *Move) End() {
	m.c.t.Helper()
	m.c.assigning.Lock()
	defer m.c.assigning.Unlock()
	m.give()
	m.c.WaitReady()
}

func (m *Move) give() {
	m.c.t.Helper()
	m.Keys()
	m.c.must(m.to.Server, "CLUSTER", "SETSLOT", m.slot, "NODE", m.to.id)
	m.Keys()
	for _, master := range m.c.Masters() {
		m.c.must(master, "CLUSTER", "SETSLOT", m.slot, "NODE", m.to.id)
	}
}

// Reshard moves slots, one after the other, with their keys from their owner to another master. It returns when all
// nodes know of it.
func (c *Cluster) Reshard(first, last int, to *Server) {
	c.t.Helper()
	c.assigning.Lock()
	defer c.assigning.Unlock()
	for slot := first; slot <= last; slot++ {
		c.BeginMove(slot, to).give()
	}
	c.WaitReady()
}

// witness returns the first node that runs.
func (c *Cluster) witness() *clusterNode {
	c.t.Helper()
	for _, node := range c.nodes {
		if node.answers() {
			return node
		}
	}
	c.t.Fatal("testredis: no node of the cluster runs")
	return nil
}

func (c *Cluster) byID(id string) *clusterNode {
	for _, node := range c.nodes {
		if node.id == id {
			return node
		}
	}
	return nil
}

func (c *Cluster) byAddr(addr string) *Server {
	for _, node := range c.nodes {
		if node.Addr() == addr {
			return node.Server
		}
	}
	return nil
}

func (c *Cluster) must(node *Server, args ...string) any {
	c.t.Helper()
	reply, err := node.Command(args...)
	if err != nil {
		c.t.Fatalf("%s on %s: %v", strings.Join(args, " "), node.Addr(), err)
	}
	return reply
}

// nodeLine is one node's view of another node; see CLUSTER NODES.
type nodeLine struct {
	id, flags, replicates string
	epoch                 string   // of its slots: where two nodes claim a slot, the larger epoch wins
	slots                 []string // "7" or "0-5460"
}

func (l nodeLine) master() bool { return strings.Contains(l.flags, "master") }
func (l nodeLine) failed() bool { return slices.Contains(strings.Split(l.flags, ","), "fail") }

// known returns the nodes that a node knows, except nodes whose handshake is not complete.
func (c *Cluster) known(node *clusterNode) (lines []nodeLine) {
	reply, err := node.Command("CLUSTER", "NODES")
	text, ok := reply.(string)
	if err != nil || !ok {
		return nil
	}
	for line := range strings.Lines(text) {
		part := strings.Fields(line)
		if len(part) < 8 || strings.Contains(part[2], "handshake") || c.byID(part[0]) == nil {
			continue
		}
		slots := slices.DeleteFunc(part[8:], func(slot string) bool { return strings.HasPrefix(slot, "[") }) // moving slots
		lines = append(lines, nodeLine{id: part[0], flags: part[2], replicates: part[3], epoch: part[6], slots: slots})
	}
	return lines
}

// ownerBy returns the owner of the slot in the view of another node; nil if there is none.
func (c *Cluster) ownerBy(node *clusterNode, slot int) *clusterNode {
	for _, line := range c.known(node) {
		for _, slots := range line.slots {
			first, last, _ := strings.Cut(slots, "-")
			from, err := strconv.Atoi(first)
			to, err2 := strconv.Atoi(last)
			if err2 != nil {
				to = from
			}
			if err == nil && from <= slot && slot <= to && line.master() {
				return c.byID(line.id)
			}
		}
	}
	return nil
}

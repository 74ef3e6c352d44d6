package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// The deployments: what each master of a quorum, or the only one, consists of.
const (
	servers  = "servers"  // one server, with replicas if grants need them
	sentinel = "sentinel" // a master with two replicas, and three sentinels
	cluster  = "cluster"  // three masters with a replica each
	embedded = "embedded" // a server in the process of the arena, which compares each script call with a model
)

// endpoint is what clients need to know to find a master.
type endpoint struct {
	Addrs   []string // of the server, of all nodes of the Cluster, or of all sentinels
	Set     string   // the name of the master for the sentinels
	Cluster bool
}

// host runs a server.
type host interface {
	Addr() string
	Binary() string
	Command(args ...string) (any, error)
	Kill()
	Restart()
	Freeze()
	Thaw()
}

// node is a server that may have locks.
type node struct {
	host
	process *testredis.Server                // the host, or nil for an embedded server
	master  int                              // of the quorum, that it is or belongs to
	replica bool                             // of a plain master, for ever
	clock   interface{ Skew(time.Duration) } // nil: its clock cannot be set
	group   *testredis.Sentinel              // that promotes it, or nil
}

func newNode(s *testredis.Server, master int) *node {
	return &node{host: s, process: s, master: master}
}

// deployment is the servers of a run as its clients see them.
type deployment struct {
	nodes     []*node
	sentinels []*node // without locks
	groups    []*testredis.Sentinel
	cluster   *testredis.Cluster
	masters   []endpoint
	empty     bool // a server that restarts has lost its data
}

// keepsData makes a server remember what it has answered, over a crash of its process.
var keepsData = []string{"--appendonly", "yes"}

func newDeployment(t testing.TB, cfg config) *deployment {
	d := &deployment{empty: cfg.deployment == servers && cfg.masters > 1 && !cfg.durable}
	if cfg.deployment == embedded {
		d.embed(t, cfg)
		return d
	}
	binary := cfg.binary(t)
	switch cfg.deployment {
	case cluster:
		d.cluster = testredis.StartCluster(t, binary, 1, keepsData...)
		d.cluster.NodeTimeout(2 * time.Second)
		all := endpoint{Cluster: true}
		for _, s := range d.cluster.Nodes() {
			d.nodes, all.Addrs = append(d.nodes, newNode(s, 0)), append(all.Addrs, s.Addr())
		}
		d.masters = []endpoint{all}
	case sentinel:
		for i := range cfg.masters {
			group := testredis.StartSentinel(t, binary, keepsData...)
			if cfg.masters == 1 { // over a quorum only a minority may fail over at once, so none does by itself
				group.DownAfter(time.Second)
			}
			for _, s := range group.Nodes() {
				n := newNode(s, i)
				n.group = group
				d.nodes = append(d.nodes, n)
			}
			for _, s := range group.Sentinels() {
				d.sentinels = append(d.sentinels, newNode(s, i))
			}
			d.groups = append(d.groups, group)
			d.masters = append(d.masters, endpoint{Addrs: group.Option().InitAddress, Set: testredis.MasterSet})
		}
	default:
		for i := range cfg.masters {
			n := d.newServer(t, cfg, i)
			d.nodes, d.masters = append(d.nodes, n), append(d.masters, endpoint{Addrs: []string{n.Addr()}})
		}
		d.addReplicas(t, cfg)
	}
	return d
}

// newServer starts a master, with a clock that can be set where that is possible.
func (d *deployment) newServer(t testing.TB, cfg config, master int) *node {
	var args []string
	if !d.empty {
		args = keepsData
	}
	if _, err := exec.LookPath("gcc"); err == nil && !cfg.valkey {
		clock := testredis.StartSkewed(t, args...)
		n := newNode(clock.Server, master)
		n.clock = clock
		return n
	}
	return newNode(testredis.StartBinary(t, cfg.binary(t), args...), master)
}

// addReplicas starts the replicas that the grants of plain masters need.
func (d *deployment) addReplicas(t testing.TB, cfg config) {
	for _, of := range slices.Clone(d.nodes) {
		for range cfg.replicas {
			replica := testredis.StartBinary(t, cfg.binary(t))
			replica.ReplicaOf(of.process)
			n := newNode(replica, of.master)
			n.replica = true
			d.nodes = append(d.nodes, n)
		}
	}
}

// binary returns the server that the run uses.
func (c config) binary(t testing.TB) string {
	if c.valkey {
		return testredis.Valkey(t)
	}
	return testredis.Binaries()[0]
}

// promotable returns how many replicas may take the place of a master.
func (d *deployment) promotable() int {
	switch {
	case d.cluster != nil:
		return 1
	case d.groups != nil:
		return 2
	default:
		return 0
	}
}

// masterOf returns the server of this node's group or quorum that takes writes, if it is not the node itself.
func (d *deployment) masterOf(n *node) *testredis.Server {
	if n.group != nil {
		if master := n.group.Master(); master != n.process {
			return master
		}
	}
	if n.replica {
		for _, other := range d.nodes {
			if other.master == n.master && !other.replica {
				return other.process
			}
		}
	}
	return nil
}

// awaitReady returns when all servers know each other's roles.
func (d *deployment) awaitReady() {
	for _, group := range d.groups {
		group.WaitReady()
	}
	if d.cluster != nil {
		d.cluster.WaitReady()
	}
}

// observed is the faults that came about as consequences of others.
type observed struct {
	mu   sync.Mutex
	seen []history.Fault
}

// watched is the roles of servers, as they report them.
type watched struct {
	mu    sync.Mutex
	roles []string
}

// watch asks the nodes for their roles until ctx ends, and records when one of them stood still.
func (f *observed) watch(ctx context.Context, nodes []*node) *watched {
	w := &watched{}
	w.set(make([]string, len(nodes)))
	for i, n := range nodes {
		go watchRole(ctx, n.Addr(), func(role string, asked int64) {
			w.mu.Lock()
			w.roles[i] = role
			w.mu.Unlock()
			if at := now(); at-asked > int64(stillness) {
				f.add(history.Fault{
					Kind: history.Still, Target: n.Addr(), From: asked, Until: at, Masters: []int{n.master},
				})
			}
		})
	}
	return w
}

func (w *watched) set(roles []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.roles = roles
}

// masters returns which nodes call themselves masters.
func (w *watched) masters() map[int]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[int]bool{}
	for i, role := range w.roles {
		if role == "master" {
			all[i] = true
		}
	}
	return all
}

// failovers records the changes of the masters until ctx ends, from shortly before a server has another role until
// shortly after as many servers call themselves masters as there should be. The template says what is not promised over
// a failover.
func (f *observed) failovers(ctx context.Context, w *watched, masters int, template history.Fault) {
	const before, after = 1500 * time.Millisecond, 500 * time.Millisecond
	var known map[int]bool
	changed := int64(0)
	for ctx.Err() == nil {
		time.Sleep(watchInterval)
		current := w.masters()
		settled := len(current) == masters
		switch {
		case known == nil && settled:
			known = current
		case known == nil || changed == 0 && isSubset(current, known): // no other server has the place of one that is down
		case changed == 0:
			changed = now() - int64(before)
		case settled:
			fault := template
			fault.Kind, fault.From, fault.Until = "failover-seen", changed, now()+int64(after)
			if maps.Equal(known, current) {
				fault.Kind = "two-masters-seen"
			}
			f.add(fault)
			known, changed = current, 0
		}
	}
}

func isSubset(a, b map[int]bool) bool {
	for i := range a {
		if !b[i] {
			return false
		}
	}
	return true
}

// watchInterval is the time between two questions to a server.
const watchInterval = 20 * time.Millisecond

// watchRole reports the role of a server, and when it was asked: "" if it is down. A server that stands still keeps its
// last role.
func watchRole(ctx context.Context, addr string, report func(role string, asked int64)) {
	for ctx.Err() == nil {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			report("", now())
			time.Sleep(watchInterval)
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		for lines := bufio.NewReader(conn); err == nil; time.Sleep(watchInterval) {
			asked := now()
			var role string
			if role, err = askRole(conn, lines); err == nil {
				report(role, asked)
			}
		}
		stop()
		_ = conn.Close()
	}
}

// askRole sends INFO, and reads the role in its reply.
func askRole(conn net.Conn, lines *bufio.Reader) (role string, err error) {
	if _, err := fmt.Fprint(conn, "INFO replication\r\n"); err != nil {
		return "", err
	}
	var size int
	head, err := lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	if _, err := fmt.Sscanf(head, "$%d", &size); err != nil {
		return "", nil // it is loading
	}
	for read := 0; read < size+2; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return "", err
		}
		read += len(line)
		if after, ok := strings.CutPrefix(line, "role:"); ok {
			role = strings.TrimSpace(after)
		}
	}
	return role, nil
}

func (f *observed) add(fault history.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, fault)
}

// faults returns what was observed so far.
func (f *observed) faults() []history.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

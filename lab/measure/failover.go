//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/peer"
)

// deployed are the workloads behind Sentinel and in a Cluster.
func deployed() []Workload { return []Workload{failover(), replicas()} }

const (
	failures    = "failed"
	gapOfLocks  = "gap"
	gapOfServer = "server's"
	gapAbove    = "above"
	twoInside   = "two inside"
	unexplained = "unexplained"
	disorder    = "token order"
)

// failover measures the time without a lock while another server replaces a master.
func failover() Workload {
	w := Workload{
		Name: "failover",
		About: "8 clients of 4 goroutines each want the locks of a master that is replaced: the longest time without a " +
			"grant, beside the longest without a SET",
		Columns: []Column{
			{Name: gapOfLocks, Unit: "ms", Worst: true},
			{Name: gapOfServer, Unit: "ms", Worst: true},
			{Name: gapAbove, Unit: "ms", Worst: true},
			{Name: "one name", Unit: "ms", Worst: true},
			{Name: failures, Worst: true},
			{Name: "leases lost", Worst: true},
			{Name: twoInside, Worst: true},
			{Name: unexplained, Worst: true},
			{Name: disorder, Worst: true},
		},
		Axis: "event", Labels: make(map[int]string), Measure: measureFailover,
		Peers: append(deployable(), peer.Replicated(1)),
	}
	for i, e := range events() {
		w.Points = append(w.Points, i)
		w.Labels[i] = e.name
	}
	return w
}

const (
	takenForDead  = time.Second // of a master with sentinels
	nodeTimeout   = 2 * time.Second
	failoverNames = 4
	plannedTimes  = 3
)

func measureFailover(ctx context.Context, s *site, lib peer.Library, point int) (Measures, error) {
	e := events()[point]
	start := func(t testing.TB) testredis.Deployment { return e.start(t, s.binary) }
	play := func(_ testing.TB, d testredis.Deployment, all []peer.Peer) (Measures, error) {
		names, key := e.names(d, lib)
		c := newCrowd(all)
		c.add(perProcess, names)
		c.start(ctx)
		defer c.stop()
		p := probe(ctx, d.(interface{ Nodes() []*testredis.Server }).Nodes(), key, c.now)
		defer p.stop()
		var strikes []time.Duration
		pause(ctx, settle)
		for range e.times {
			strikes = append(strikes, c.now())
			e.strike(d)
			pause(ctx, 2*settle)
		}
		strikes = append(strikes, c.now())
		c.stop()
		return gaps(c, p.stop(), names, strikes), nil
	}
	return s.staged(ctx, start, lib, processes, play)
}

// gaps measures the time from each strike to the next; the worst counts.
func gaps(c *crowd, written []write, names []string, strikes []time.Duration) Measures {
	all := c.grants()
	m := Measures{gapAbove: -1e9}
	for i, from := range strikes[:len(strikes)-1] {
		to := strikes[i+1]
		locks, servers := longestGap(moments(all), from, to), longestGap(times(written), from, to)
		if above := millis(locks - servers); above > m[gapAbove] {
			m[gapAbove], m[gapOfLocks], m[gapOfServer] = above, millis(locks), millis(servers)
		}
		m["one name"] = max(m["one name"], millis(worstGap(all, names, from, to)))
	}
	failed, _ := c.failures()
	broken, open := c.referee.violations()
	open = slices.DeleteFunc(open, func(at time.Time) bool { return twoMasters(written, at.Sub(c.began)) })
	m[failures], m["leases lost"] = float64(failed), float64(c.losses())
	m[twoInside], m[unexplained], m[disorder] = float64(broken), float64(len(open)), float64(c.referee.order)
	return m
}

// probeKeyOn returns a key on the master that no lock uses.
func probeKeyOn(c *testredis.Cluster, master *testredis.Server) string {
	for i := 0; ; i++ {
		if key := "probe" + strconv.Itoa(i); c.Owner(c.Slot(key)) == master {
			return key
		}
	}
}

func failoverBounds() (all []bound) {
	for i, e := range events() {
		all = append(all, bound{
			what: e.name + ": ms without a grant above the server's own", workload: "failover", column: gapAbove, point: i,
			limit: e.limit,
		})
		for _, form := range []string{peer.Ours, peer.Replicated(1).Name} {
			all = append(all, bound{
				what: fmt.Sprintf("%s, %s: tokens out of order", e.name, form), workload: "failover", column: disorder,
				point: i, form: form,
			})
		}
		all = append(all, bound{
			what: e.name + ": two inside, nothing forgotten, one master", workload: "failover", column: unexplained, point: i,
		}, bound{
			what: e.name + ": two inside, with a replica", workload: "failover", column: twoInside, point: i,
			form: peer.Replicated(1).Name,
		})
	}
	return all
}

// worstGap is the longest gap of any of the names.
func worstGap(all []grant, names []string, from, to time.Duration) (longest time.Duration) {
	for _, name := range names {
		longest = max(longest, longestGap(moments(of(all, []string{name})), from, to))
	}
	return longest
}

// event is a way in which a master is replaced.
type event struct {
	name  string
	times int
	limit float64 // of the time without a grant, above the server's own, in ms
	start func(t testing.TB, binary string) testredis.Deployment
	// names returns names of locks on the master that is struck, and a key for a probe.
	names  func(d testredis.Deployment, lib peer.Library) (names []string, key string)
	strike func(d testredis.Deployment) // returns when another server has replaced the master
}

func events() []event {
	return []event{
		{"SENTINEL FAILOVER", plannedTimes, 500, startWatched, ofSentinel, func(d testredis.Deployment) {
			d.(*testredis.Sentinel).Failover()
		}},
		{"kill -9, Sentinel", 1, 1000, startWatched, ofSentinel, func(d testredis.Deployment) {
			s := d.(*testredis.Sentinel)
			old := s.Master()
			old.Kill()
			s.AwaitMaster(old)
		}},
		{"CLUSTER FAILOVER", plannedTimes, 500, startTimed, ofShard, func(d testredis.Deployment) {
			c := d.(*testredis.Cluster)
			c.Failover(c.Owner(struckSlot))
		}},
		{"kill -9, Cluster", 1, 1000, startTimed, ofShard, func(d testredis.Deployment) {
			c := d.(*testredis.Cluster)
			old := c.Owner(struckSlot)
			old.Kill()
			c.AwaitTakeover(old)
		}},
	}
}

func startWatched(t testing.TB, binary string) testredis.Deployment {
	s := testredis.StartSentinel(t, binary)
	s.DownAfter(takenForDead)
	for _, sentinel := range s.Sentinels() { // a failover that fails on a busy machine is soon tried again
		if _, err := sentinel.Command("SENTINEL", "SET", testredis.MasterSet, "FAILOVER-TIMEOUT", "2000"); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func ofSentinel(_ testredis.Deployment, _ peer.Library) ([]string, string) {
	return numbered(failoverNames), "probe"
}

func startTimed(t testing.TB, binary string) testredis.Deployment {
	c := testredis.StartCluster(t, binary, 1)
	c.NodeTimeout(nodeTimeout)
	return c
}

// struckSlot is a slot of the second shard, which is struck: the first has the node that clients start with.
const struckSlot = testredis.Slots / 2

func ofShard(d testredis.Deployment, lib peer.Library) ([]string, string) {
	c := d.(*testredis.Cluster)
	master := c.Owner(struckSlot)
	return named(c, lib, "n", failoverNames)[master], probeKeyOn(c, master)
}

// probeEvery is the interval of the writes to each server.
const probeEvery = 2 * time.Millisecond

// prober repeatedly writes a key to every server of a deployment: while no server accepts a write, none can grant a
// lock.
type prober struct {
	end     context.CancelFunc
	probing sync.WaitGroup
	mu      sync.Mutex
	written []write
}

// write is a SET that a server accepted.
type write struct {
	node int
	at   time.Duration
}

// twoMasters reports whether two servers accepted writes about that time: each grants locks that the other does not
// know of.
func twoMasters(written []write, about time.Duration) bool {
	node := -1
	for _, w := range written {
		if (w.at - about).Abs() > aboutThen {
			continue
		}
		if node >= 0 && w.node != node {
			return true
		}
		node = w.node
	}
	return false
}

// aboutThen bounds, for a busy machine, how long before a breach its holds can have been granted.
const aboutThen = 500 * time.Millisecond

// times returns the times of all accepted writes.
func times(written []write) (all []time.Duration) {
	for _, w := range written {
		all = append(all, w.at)
	}
	return all
}

func probe(ctx context.Context, nodes []*testredis.Server, key string, now func() time.Duration) *prober {
	p := &prober{}
	ctx, p.end = context.WithCancel(ctx)
	for i, node := range nodes {
		p.probing.Go(func() {
			for ; ctx.Err() == nil; pause(ctx, probeEvery) {
				if _, err := node.Command("SET", key, ""); err == nil {
					p.wrote(write{i, now()})
				}
			}
		})
	}
	return p
}

func (p *prober) wrote(w write) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = append(p.written, w)
}

// stop returns the accepted writes with their servers, in ascending order.
func (p *prober) stop() []write {
	p.end()
	p.probing.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(p.written, func(a, b write) int { return int(a.at - b.at) })
	return p.written
}

// named returns, for each of the masters, n names with locks on it.
func named(c *testredis.Cluster, lib peer.Library, prefix string, n int) map[*testredis.Server][]string {
	all := make(map[*testredis.Server][]string)
	for i, full := 0, 0; full < len(c.Masters()); i++ {
		name := prefix + strconv.Itoa(i)
		owner := c.Owner(c.Slot(lib.Key(name)))
		if len(all[owner]) == n {
			continue
		}
		all[owner] = append(all[owner], name)
		if len(all[owner]) == n {
			full++
		}
	}
	return all
}

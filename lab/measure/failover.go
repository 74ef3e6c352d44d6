//go:build unix

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/harness"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/peer"
)

const (
	failures    = "failed"
	gapOfLocks  = "gap"
	gapOfServer = "server's"
	gapAbove    = "above"
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
			{Name: failures, Worst: true},
		},
		Axis: "event", Labels: make(map[int]string), Measure: measureFailover,
		Peers: append(peer.Named(peer.Ours), peer.AsIs()),
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
	processes     = 8
	perProcess    = 4
	settle        = time.Second // how long the goroutines work before the measurement begins
)

func measureFailover(ctx context.Context, s *site, lib peer.Library, point int) (m Measures, err error) {
	e := events()[point]
	err = harness.Run(ctx, func(t testing.TB) (err error) {
		d := e.start(t, s.binary)
		o := options(peer.TTL)
		o.At = d.Option()
		m, err = use(lib, o, processes, func(all []peer.Peer) (Measures, error) { return strike(ctx, e, d, lib, all), nil })
		return err
	})
	return m, err
}

// strike replaces masters while clients work, and measures the time from each strike to the next; the worst counts.
func strike(ctx context.Context, e event, d testredis.Deployment, lib peer.Library, all []peer.Peer) Measures {
	names, key := e.names(d, lib)
	r := &record{began: time.Now()}
	ctx, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	for i := range processes * perProcess {
		working.Go(func() { r.lock(ctx, all[i%processes], names) })
	}
	for _, node := range d.(interface{ Nodes() []*testredis.Server }).Nodes() {
		working.Go(func() { r.write(ctx, node, key) })
	}
	pause(ctx, settle)
	strikes := []time.Duration{time.Since(r.began)}
	for range e.times {
		e.strike(d)
		pause(ctx, 2*settle)
		strikes = append(strikes, time.Since(r.began))
	}
	stop()
	working.Wait()
	return r.gaps(strikes)
}

// record is when locks were granted, and when a server accepted a write: while none does, none can grant a lock.
type record struct {
	began           time.Time
	mu              sync.Mutex
	grants, written []time.Duration
	failed          int
}

func (r *record) note(of *[]time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*of = append(*of, time.Since(r.began))
}

// lock takes locks until ctx ends. Its calls have no deadline: some libraries shorten their leases to it.
func (r *record) lock(ctx context.Context, p peer.Peer, names []string) {
	for ctx.Err() == nil {
		hold, err := p.Lock(ctx, names[rand.N(len(names))])
		if err == nil {
			r.note(&r.grants)
		} else if ctx.Err() == nil {
			r.mu.Lock()
			r.failed++
			r.mu.Unlock()
		}
		pause(ctx, 5*time.Millisecond)
		if err == nil {
			_ = hold.Release(context.WithoutCancel(ctx)) // the server may have forgotten it
		}
	}
}

// write writes a key until ctx ends.
func (r *record) write(ctx context.Context, node *testredis.Server, key string) {
	for ; ctx.Err() == nil; pause(ctx, 2*time.Millisecond) {
		if _, err := node.Command("SET", key, ""); err == nil {
			r.note(&r.written)
		}
	}
}

// gaps measures the time from each strike to the next, the last of which is the end.
func (r *record) gaps(strikes []time.Duration) Measures {
	m := Measures{gapAbove: -1e9, failures: float64(r.failed)}
	for i, from := range strikes[:len(strikes)-1] {
		to := strikes[i+1]
		locks, servers := longestGap(r.grants, from, to), longestGap(r.written, from, to)
		if above := millis(locks - servers); above > m[gapAbove] {
			m[gapAbove], m[gapOfLocks], m[gapOfServer] = above, millis(locks), millis(servers)
		}
	}
	return m
}

// longestGap returns the longest time without any of the moments, from one time to another.
func longestGap(moments []time.Duration, from, to time.Duration) (longest time.Duration) {
	last := from
	for _, at := range slices.Sorted(slices.Values(moments)) {
		if from <= at && at < to {
			longest = max(longest, at-last)
			last = at
		}
	}
	return max(longest, to-last)
}

// event is a way in which a master is replaced.
type event struct {
	name  string
	times int
	start func(t testing.TB, binary string) testredis.Deployment
	// names returns names of locks on the master that is struck, and a key on it that no lock uses.
	names  func(d testredis.Deployment, lib peer.Library) (names []string, key string)
	strike func(d testredis.Deployment) // returns when another server has replaced the master
}

func events() []event {
	return []event{
		{"SENTINEL FAILOVER", plannedTimes, startWatched, ofSentinel, func(d testredis.Deployment) {
			d.(*testredis.Sentinel).Failover()
		}},
		{"kill -9, Sentinel", 1, startWatched, ofSentinel, func(d testredis.Deployment) {
			s := d.(*testredis.Sentinel)
			old := s.Master()
			old.Kill()
			s.AwaitMaster(old)
		}},
		{"CLUSTER FAILOVER", plannedTimes, startTimed, ofShard, func(d testredis.Deployment) {
			c := d.(*testredis.Cluster)
			c.Failover(c.Owner(struckSlot))
		}},
		{"kill -9, Cluster", 1, startTimed, ofShard, func(d testredis.Deployment) {
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

func ofShard(d testredis.Deployment, lib peer.Library) (names []string, key string) {
	c := d.(*testredis.Cluster)
	there := func(key string) bool { return c.Owner(c.Slot(key)) == c.Owner(struckSlot) }
	for i := 0; len(names) < failoverNames; i++ {
		if name := "n" + strconv.Itoa(i); there(lib.Key(name)) {
			names = append(names, name)
		}
	}
	for i := 0; !there(key); i++ {
		key = "probe" + strconv.Itoa(i)
	}
	return names, key
}

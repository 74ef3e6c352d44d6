//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/bench/peers/internal/peer"
	"github.com/seed74116694/fencelock/internal/testredis"
)

const (
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

//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/chaos/peer"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

const (
	fine       = "fine"
	frozen     = "frozen"
	killed     = "killed"
	leastSick  = 5 * time.Second // a window: several renewals of sickTTL
	sickTTL    = 2 * time.Second
	idleLeases = 20 // for each shard
	shardNames = 8  // that the crowd uses, for each shard
)

// shards measures the cost of a sick shard for the other shards.
func shards() Workload {
	return Workload{
		Name: "shards",
		About: "a Cluster of three shards, 2 goroutines of each of 8 clients for each shard; one shard is frozen, then " +
			"killed: grants on the other two",
		Columns: []Column{
			{Name: fine, Unit: "/s"},
			{Name: frozen, Unit: "/s"},
			{Name: frozen + " share", Digits: 2},
			{Name: killed, Unit: "/s"},
			{Name: killed + " share", Digits: 2},
			{Name: failures, Worst: true},
			{Name: "leases lost", Worst: true},
		},
		Points: []int{0}, Peers: deployable(), Measure: measureShards,
	}
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

func measureShards(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
	start := func(t testing.TB) testredis.Deployment {
		c := testredis.StartCluster(t, s.binary, 0, "--cluster-require-full-coverage", "no")
		c.NodeTimeout(2 * time.Second)
		return c
	}
	return s.staged(ctx, start, withTTL(lib, sickTTL), processes,
		func(_ testing.TB, d testredis.Deployment, all []peer.Peer) (Measures, error) {
			c := d.(*testredis.Cluster)
			names, idle := named(c, lib, "n", shardNames), named(c, lib, "idle", idleLeases)
			return strikeShard(ctx, c, all, names, idle, max(s.window, leastSick))
		})
}

// strikeShard freezes one shard under load, then kills it, and returns the effect on the others.
func strikeShard(
	ctx context.Context, c *testredis.Cluster, all []peer.Peer, names, idle map[*testredis.Server][]string,
	window time.Duration,
) (Measures, error) {
	sick := c.Masters()[1]
	var healthy, kept []string
	for master := range names {
		if master != sick {
			healthy, kept = append(healthy, names[master]...), append(kept, idle[master]...)
		}
	}
	k, err := keep(ctx, all[0], slices.Concat(kept, idle[sick]))
	if err != nil {
		return nil, err
	}
	k.holds = k.holds[:len(kept)]
	crowd := newCrowd(all)
	for _, each := range names {
		crowd.add(2, each)
	}
	crowd.start(ctx)
	defer crowd.stop()
	from := make(map[string]time.Duration)
	for _, phase := range []struct {
		name  string
		begin func()
	}{{fine, func() {}}, {frozen, sick.Freeze}, {killed, sick.Kill}} {
		phase.begin()
		pause(ctx, settle)
		from[phase.name] = crowd.now()
		pause(ctx, window)
	}
	lostIdle := k.lost()
	crowd.stop()
	m, err := phases(crowd, healthy, from, window)
	m["leases lost"] += float64(lostIdle)
	return m, err
}

// phases returns the figures of the healthy names in each phase.
func phases(crowd *crowd, healthy []string, from map[string]time.Duration, window time.Duration) (Measures, error) {
	on := of(crowd.grants(), healthy)
	m := Measures{failures: 0, "leases lost": 0}
	for phase, began := range from {
		m[phase] = float64(len(between(on, began, began+window))) / window.Seconds()
	}
	m[frozen+" share"], m[killed+" share"] = m[frozen]/m[fine], m[killed]/m[fine]
	for _, w := range crowd.workers {
		if slices.Contains(healthy, w.names[0]) {
			m[failures] += float64(len(w.failed))
			m["leases lost"] += float64(len(w.lost))
		}
	}
	if n, _ := crowd.referee.violations(); n > 0 {
		return m, fmt.Errorf("%d were in beside another", n)
	}
	return m, nil
}

func sickBounds() (all []bound) {
	for _, phase := range []string{frozen, killed} {
		all = append(all, bound{
			what: "one shard of three " + phase + ": grants of the others over before", workload: "shards",
			column: phase + " share", least: true, limit: .95,
		})
	}
	return append(all, bound{
		what: "one shard of three frozen, then killed: leases lost on the others", workload: "shards",
		column: "leases lost", limit: 0,
	})
}

//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/seed74116694/fencelock/chaos/peer"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

const (
	grants   = "grants/s"
	waitP50  = "wait p50"
	waitP99  = "wait p99"
	failures = "failed"
	perPlace = 1000 // points of a place: its number times this, and the number of names
)

// deployed are the workloads behind Sentinel and in a Cluster.
func deployed() []Workload {
	return []Workload{deployments(), shards(), failover(), reshard(), replicas()}
}

// crowdNames are the numbers of names that the crowd shares.
func crowdNames() []int { return []int{4, 40} }

func deployments() Workload {
	w := Workload{
		Name:  "deployments",
		About: "8 clients of 4 goroutines each hold one of some names for 5 ms, again and again",
		Columns: []Column{
			{Name: grants, Ratio: true, More: true},
			{Name: waitP50, Unit: "ms", Digits: 1},
			{Name: waitP99, Unit: "ms", Digits: 1, Ratio: true},
		},
		Axis: "where", Labels: make(map[int]string), Over: peer.RueidislockAsIs,
		Peers: deployable(), Measure: measureDeployment,
	}
	for _, names := range crowdNames() {
		for i, p := range places() {
			w.Points = append(w.Points, i*perPlace+names)
			w.Labels[i*perPlace+names] = fmt.Sprintf("%s, %d names", p.name, names)
		}
	}
	return w
}

func measureDeployment(ctx context.Context, s *site, lib peer.Library, point int) (Measures, error) {
	start := func(t testing.TB) testredis.Deployment { return places()[point/perPlace].start(t, s.binary) }
	play := func(_ testing.TB, _ testredis.Deployment, all []peer.Peer) (Measures, error) {
		c := newCrowd(all)
		c.add(perProcess, numbered(point%perPlace))
		c.start(ctx)
		defer c.stop()
		pause(ctx, settle+s.window)
		c.stop()
		if n, why := c.failures(); n > 0 {
			return nil, fmt.Errorf("%d calls failed: %w", n, why)
		}
		if n, _ := c.referee.violations(); n > 0 || c.referee.order > 0 {
			return nil, fmt.Errorf("%d were in beside another, %d tokens out of order", n, c.referee.order)
		}
		counted := between(c.grants(), settle, settle+s.window)
		sorted := waits(counted)
		return Measures{
			grants:  float64(len(counted)) / s.window.Seconds(),
			waitP50: millis(quantile(sorted, .5)), waitP99: millis(quantile(sorted, .99)),
		}, nil
	}
	return s.staged(ctx, start, lib, processes, play)
}

// deployedBounds are the bounds of all deployed workloads.
func deployedBounds() []bound {
	return slices.Concat(deploymentBounds(), sickBounds(), failoverBounds(), reshardBounds())
}

func deploymentBounds() (all []bound) {
	for _, names := range crowdNames() {
		for i, p := range places() {
			point := i*perPlace + names
			where := fmt.Sprintf("%s, %d names: ", p.name, names)
			all = append(all, bound{
				what: where + "grants over rueidislock", workload: "deployments", column: grants, point: point,
				over: peer.RueidislockAsIs, least: true, limit: 1,
			})
			if i == 0 {
				continue
			}
			all = append(all, bound{
				what: where + "grants over standalone", workload: "deployments", column: grants, point: point,
				over: peer.Ours, overPoint: names, least: true, limit: .9,
			}, bound{
				what: where + "p99 of waiting over standalone", workload: "deployments", column: waitP99, point: point,
				over: peer.Ours, overPoint: names, limit: 1.5,
			})
		}
	}
	return all
}

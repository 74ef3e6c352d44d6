//go:build unix

package main

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/chaos/peer"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

const (
	moving       = "moving"
	leftBetween  = "left"
	longestThere = "longest there"
	movedSlots   = 3000
	leftFor      = 5 * time.Second
	movingNames  = 12 // and the same number that stays
	movingIdle   = 30 // the same, of leases that are only kept
)

// reshard measures slots that move to another master.
func reshard() Workload {
	return Workload{
		Name: "reshard",
		About: "8 clients of 4 goroutines each use 24 names in a Cluster of three shards: 3,000 slots with 12 of them " +
			"move, then the slot of one is left between two masters for 5 s",
		Columns: []Column{
			{Name: fine, Unit: "/s"},
			{Name: moving, Unit: "/s"},
			{Name: "moving p99", Unit: "ms", Worst: true},
			{Name: leftBetween, Unit: "/s"},
			{Name: "left p99", Unit: "ms", Worst: true},
			{Name: longestThere, Unit: "ms", Worst: true},
			{Name: failures, Worst: true},
			{Name: "leases lost", Worst: true},
			{Name: twoInside, Worst: true},
		},
		Points: []int{0}, Peers: deployable(), Measure: measureReshard,
	}
}

// inSlots returns n names with locks in the first slots or, otherwise, in the remaining ones.
func inSlots(c *testredis.Cluster, lib peer.Library, prefix string, n int, first bool) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := prefix + strconv.Itoa(i); c.Slot(lib.Key(name)) < movedSlots == first {
			names = append(names, name)
		}
	}
	return names
}

func measureReshard(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
	start := func(t testing.TB) testredis.Deployment {
		c := testredis.StartCluster(t, s.binary, 1)
		c.NodeTimeout(time.Minute) // a busy machine must not cause a failover
		return c
	}
	return s.staged(ctx, start, withTTL(lib, sickTTL), processes,
		func(_ testing.TB, d testredis.Deployment, all []peer.Peer) (Measures, error) {
			c := d.(*testredis.Cluster)
			idle := append(inSlots(c, lib, "idle", movingIdle, true), inSlots(c, lib, "idle", movingIdle, false)...)
			k, err := keep(ctx, all[0], idle)
			if err != nil {
				return nil, err
			}
			return moveSlots(ctx, c, lib, all, k, max(s.window, leastSick))
		})
}

// moveSlots moves the first slots under load, leaves one between two masters, and returns the effect on the crowd.
func moveSlots(
	ctx context.Context, c *testredis.Cluster, lib peer.Library, all []peer.Peer, k *keeper, window time.Duration,
) (Measures, error) {
	names := append(inSlots(c, lib, "n", movingNames, true), inSlots(c, lib, "n", movingNames, false)...)
	crowd := newCrowd(all)
	crowd.add(perProcess, names)
	crowd.start(ctx)
	defer crowd.stop()
	pause(ctx, settle+window)
	moved := crowd.now()
	c.Reshard(0, movedSlots-1, c.Another(c.Owner(0)))
	ready := crowd.now()
	pause(ctx, settle)
	slot := c.Slot(lib.Key(names[0]))
	begun := crowd.now()
	move := c.BeginMove(slot, c.Another(c.Owner(slot)))
	pause(ctx, leftFor)
	over := crowd.now()
	move.End()
	pause(ctx, settle)
	lostIdle := k.lost()
	end := crowd.now()
	crowd.stop()

	got := crowd.grants()
	there := waits(of(between(got, begun, end), names[:1]))
	failed, _ := crowd.failures()
	two, _ := crowd.referee.violations()
	m := Measures{
		"moving p99": millis(quantile(waits(between(got, moved, ready+settle)), .99)),
		"left p99":   millis(quantile(waits(between(got, begun, end)), .99)),
		failures:     float64(failed), "leases lost": float64(lostIdle + crowd.losses()), twoInside: float64(two),
	}
	if len(there) > 0 {
		m[longestThere] = millis(there[len(there)-1])
	}
	m.rate(fine, got, settle, moved)
	m.rate(moving, got, moved, ready)
	m.rate(leftBetween, got, begun, over)
	return m, nil
}

// rate sets the rate of acquisitions per second from one time to another.
func (m Measures) rate(column string, got []grant, from, to time.Duration) {
	m[column] = float64(len(between(got, from, to))) / (to - from).Seconds()
}

func reshardBounds() (all []bound) {
	for _, p99 := range []string{"moving p99", "left p99"} {
		all = append(all, bound{what: "reshard: " + p99 + " of waiting, ms", workload: "reshard", column: p99, limit: 2000})
	}
	for _, none := range []string{failures, "leases lost", twoInside} {
		all = append(all, bound{what: "reshard: " + none, workload: "reshard", column: none})
	}
	return all
}

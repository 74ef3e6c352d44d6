//go:build unix

package main

import (
	"testing"

	"github.com/seed74116694/fencelock/bench/peers/internal/peer"
	"github.com/seed74116694/fencelock/internal/testredis"
)

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

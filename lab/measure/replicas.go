//go:build unix

package main

import (
	"context"
	"testing"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/peer"
)

// replicas measures the cost of waiting for replicas.
func replicas() Workload {
	return Workload{
		Name:    "replicas",
		About:   "Lock and Release of a free name by one goroutine, of a master with two replicas behind sentinels",
		Columns: []Column{{Name: p50, Unit: "us", Ratio: true}, {Name: "p99", Unit: "us", Ratio: true}},
		Points:  []int{0}, Over: peer.Ours, Peers: append(peer.Named(peer.Ours), peer.Replicated(1), peer.Replicated(2)),
		Measure: measureReplicas,
	}
}

func measureReplicas(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
	start := func(t testing.TB) testredis.Deployment { return testredis.StartSentinel(t, s.binary) }
	return s.staged(ctx, start, lib, 1, func(_ testing.TB, _ testredis.Deployment, all []peer.Peer) (Measures, error) {
		return timeOne(ctx, all[0], s.window)
	})
}

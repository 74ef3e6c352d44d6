package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

const p50 = "p50"

// latency measures one goroutine that takes a free lock and releases it. Client and server share a processor.
func latency() Workload {
	return Workload{
		Name:    "latency",
		About:   "Lock and Release of a free name by one goroutine; client and server on one CPU",
		Columns: []Column{{Name: p50, Unit: "us", Digits: 1, Ratio: true}, {Name: "p99", Unit: "us", Digits: 1}},
		Points:  []int{0}, Over: peer.FloorSet, Peers: append(peer.Select(pairs), peer.OverAutomatic()),
		Measure: func(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
			return measureLatency(ctx, s, lib, 1)
		},
	}
}

// quorumLatency is the same over several masters.
func quorumLatency() Workload {
	return Workload{
		Name:    "quorum-latency",
		About:   "the same over a number of masters, all on that one CPU",
		Columns: []Column{{Name: p50, Unit: "us", Digits: 1, Ratio: true}, {Name: "p99", Unit: "us", Digits: 1}},
		Axis:    "masters", Points: []int{3, 5}, Over: peer.FloorSet,
		Peers: peer.Select(func(l peer.Library) bool { return l.Quorum }), Measure: measureLatency,
	}
}

// warmUp is the number of pairs before the measured ones: scripts are loaded, buffers and branches are warm.
const warmUp = 200

func measureLatency(ctx context.Context, s *site, lib peer.Library, masters int) (_ Measures, err error) {
	servers, err := s.empty(ctx, masters)
	if err != nil {
		return nil, err
	}
	undo, err := server.Pin(servers...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, undo()) }()
	p, err := open(lib, servers, peer.TTL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()

	return timeOne(ctx, p, s.window)
}

// timeOne times pairs of one goroutine on one name.
func timeOne(ctx context.Context, p peer.Peer, window time.Duration) (Measures, error) {
	for range warmUp {
		if err := pair(ctx, p, "name"); err != nil {
			return nil, err
		}
	}
	took := make([]time.Duration, 0, 1<<18)
	for end := time.Now().Add(window); time.Now().Before(end); {
		began := time.Now()
		if err := pair(ctx, p, "name"); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return Measures{p50: micros(quantile(took, .5)), "p99": micros(quantile(took, .99))}, nil
}

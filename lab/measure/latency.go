package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
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
		Points:  []int{0}, Over: peer.FloorSet, Peers: peer.Select(pairs),
		Measure: func(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
			return s.on(lib, 1, 1, peer.TTL, func(servers []*testredis.Server, all []peer.Peer) (_ Measures, err error) {
				undo, err := server.Pin(servers...)
				if err != nil {
					return nil, err
				}
				defer func() { err = errors.Join(err, undo()) }()
				return timeOne(ctx, all[0], s.window)
			})
		},
	}
}

// network measures one goroutine that takes a free lock and releases it, as latency does, but over a network: a proxy
// delays each direction. There the round trips determine the time, and the load of the machine hardly matters.
func network() Workload {
	return Workload{
		Name:    "network",
		About:   "Lock and Release of a free name by one goroutine, behind a proxy that delays each direction by 0.5 ms",
		Columns: []Column{{Name: p50, Unit: "us", Ratio: true}, {Name: "p99", Unit: "us"}},
		Points:  []int{0}, Over: peer.FloorSet, Peers: append(peer.Select(pairs), peer.InBackground()),
		Measure: func(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
			return s.on(lib, 1, 0, peer.TTL, func(servers []*testredis.Server, _ []peer.Peer) (_ Measures, err error) {
				proxy, err := server.Delay(ctx, servers[0].Addr(), time.Millisecond/2)
				if err != nil {
					return nil, err
				}
				defer func() { err = errors.Join(err, proxy.Close()) }()
				o := options(peer.TTL)
				o.Addrs = []string{proxy.Addr}
				return use(lib, o, 1, func(all []peer.Peer) (Measures, error) { return timeOne(ctx, all[0], s.window) })
			})
		},
	}
}

// firstPairs is the number of pairs before the measured ones: scripts are loaded, buffers and branches are warm.
const firstPairs = 200

// timeOne times pairs of one goroutine on one name.
func timeOne(ctx context.Context, p peer.Peer, window time.Duration) (Measures, error) {
	for range firstPairs {
		if err := pair(ctx, p.Lock, "name"); err != nil {
			return nil, err
		}
	}
	took := make([]time.Duration, 0, 1<<18)
	for end := time.Now().Add(window); time.Now().Before(end); {
		began := time.Now()
		if err := pair(ctx, p.Lock, "name"); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return Measures{p50: micros(quantile(took, .5)), "p99": micros(quantile(took, .99))}, nil
}

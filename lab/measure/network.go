package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

// network measures one goroutine that takes a free lock and releases it, as latency does, but over a network: a proxy
// delays each direction. There the round trips determine the time, and the load of the machine hardly matters.
func network() Workload {
	return Workload{
		Name:    "network",
		About:   "Lock and Release of a free name by one goroutine, behind a proxy that delays each direction",
		Columns: []Column{{Name: p50, Unit: "us", Ratio: true}, {Name: "p99", Unit: "us"}},
		Axis:    "delay", Points: []int{250, 500, 2000},
		Labels: map[int]string{250: "0.25 ms", 500: "0.5 ms", 2000: "2 ms"},
		Over:   peer.FloorSet, Peers: append(peer.Select(pairs), peer.InBackground()), Measure: measureNetwork,
	}
}

func measureNetwork(ctx context.Context, s *site, lib peer.Library, micros int) (_ Measures, err error) {
	servers, err := s.empty(ctx, 1)
	if err != nil {
		return nil, err
	}
	proxy, err := server.Delay(ctx, servers[0], time.Duration(micros)*time.Microsecond)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	p, err := lib.Open(peer.Options{Addrs: []string{proxy.Addr}, TTL: peer.TTL, ClientName: "bench"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return timeOne(ctx, p, s.window)
}

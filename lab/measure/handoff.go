package main

import (
	"context"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/peer"
)

const (
	handOffs     = "hand-offs/s"
	handOffDelay = "delay p50"
	fairness     = "Jain"
)

// handOff measures one name that all goroutines want. A poller's locks per second would be one goroutine that takes the
// key again and again, so hand-offs are counted.
func handOff() Workload {
	return Workload{
		Name:  "hand-off",
		About: "16 goroutines, of one client or of 16, want one name; counted are locks that went to one who was waiting",
		Columns: []Column{
			{Name: handOffs, Ratio: true, More: true},
			{Name: "locks/s"},
			{Name: handOffDelay, Unit: "us"},
			{Name: fairness, Digits: 2},
			{Name: "longest wait", Unit: "ms"},
		},
		Axis: "clients", Points: []int{1, contenders}, Over: peer.FloorQueue, Peers: peer.Select(waits),
		Measure: contention(contenders),
	}
}

// sharers is the number of goroutines of a workload in which the goroutines of a process share its hold on the server.
// A client stands for a process.
const sharers = 64

// shared measures one name that all goroutines of some processes want.
func shared() Workload {
	others := peer.Named(peer.FloorQueue, peer.Ours, peer.RedsyncRueidis, peer.Rueidislock)
	return Workload{
		Name:    "shared",
		About:   "64 goroutines, of one client or 16 each of four, want one name",
		Columns: []Column{{Name: "locks/s", Ratio: true, More: true}, {Name: fairness, Digits: 2}},
		Axis:    "clients", Points: []int{1, 4}, Over: peer.FloorQueue, Peers: append(others, peer.SharedHolds()),
		Measure: contention(sharers),
	}
}

// contention has goroutines, spread over the clients, want one name for a turn.
func contention(goroutines int) func(context.Context, *site, peer.Library, int) (Measures, error) {
	return func(ctx context.Context, s *site, lib peer.Library, clients int) (Measures, error) {
		return s.on(lib, 1, clients, peer.TTL, func(_ []*testredis.Server, all []peer.Peer) (Measures, error) {
			if err := warmUp(ctx, all); err != nil {
				return nil, err
			}
			began := time.Now()
			played, err := contend(ctx, all, goroutines, s.window)
			return summary(played, time.Since(began)), err
		})
	}
}

func summary(all []*contender, took time.Duration) Measures {
	var locks, handed float64
	var shares []float64
	var delays []time.Duration
	var longest time.Duration
	for _, c := range all {
		locks, handed = locks+float64(c.locks), handed+float64(c.handOffs)
		shares = append(shares, float64(c.locks))
		delays = slices.Concat(delays, c.handed)
		longest = max(longest, c.longest)
	}
	m := Measures{
		handOffs: handed / took.Seconds(), "locks/s": locks / took.Seconds(),
		fairness: jain(shares), "longest wait": millis(longest),
	}
	if len(delays) > 0 {
		slices.Sort(delays)
		m[handOffDelay] = micros(quantile(delays, .5))
	}
	return m
}

// jain is Jain's index of fairness: 1 if all have the same share, 1/n if one has everything, and 0 for an empty slice.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}

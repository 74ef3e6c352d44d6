package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
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
		Axis: "clients", Points: []int{1, contenders}, Over: peer.FloorQueue,
		Peers:   peer.Select(func(l peer.Library) bool { return locks(l) && (!l.Floor || l.Queues) }),
		Measure: measureHandOff,
	}
}

// openAll opens several peers of a kind, and returns a function that closes them.
func openAll(lib peer.Library, servers []*server.Server, n int) (all []peer.Peer, closeAll func() error, err error) {
	closeAll = func() (err error) {
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
		return err
	}
	for range n {
		p, err := open(lib, servers, peer.TTL)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		all = append(all, p)
	}
	return all, closeAll, nil
}

func measureHandOff(ctx context.Context, s *site, lib peer.Library, clients int) (Measures, error) {
	played, took, err := contention(ctx, s, lib, clients, contenders)
	if err != nil {
		return nil, err
	}
	return summary(played, took), nil
}

// contention has goroutines, spread over the clients, want one name for a turn. It returns the observations of each,
// and the duration of the turn.
func contention(
	ctx context.Context, s *site, lib peer.Library, clients, goroutines int,
) (played []*contender, took time.Duration, err error) {
	servers, err := s.empty(ctx, 1)
	if err != nil {
		return nil, 0, err
	}
	all, closeAll, err := openAll(lib, servers, clients)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	for _, p := range all {
		if err := pair(ctx, p, "warm-up"); err != nil {
			return nil, 0, err
		}
	}
	began := time.Now()
	played, err = contend(ctx, all, goroutines, s.window)
	if err != nil {
		return nil, 0, err
	}
	return played, time.Since(began), nil
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
		fairness: jain(shares), "longest wait": micros(longest) / 1000,
	}
	if len(delays) > 0 {
		m[handOffDelay] = micros(medianTime(delays))
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

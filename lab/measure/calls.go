package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

const (
	insideWrite   = "pair"
	insideRead    = "reader's pair"
	insideHandOff = "hand-off"
)

// calls measures the commands that a lock sends to its server.
func calls() Workload {
	return Workload{
		Name:  "calls",
		About: "commands inside scripts, and commands sent, by MONITOR; of hand-offs with 16 clients",
		Columns: []Column{
			{Name: insideWrite, Digits: 1},
			{Name: "sent, pair", Digits: 1},
			{Name: insideRead, Digits: 1},
			{Name: insideHandOff, Digits: 1},
			{Name: "sent, hand-off", Digits: 1},
		},
		Points: []int{0}, Once: true, Peers: peer.Select(locks), Measure: measureCalls,
	}
}

func measureCalls(ctx context.Context, s *site, lib peer.Library, _ int) (_ Measures, err error) {
	servers, err := s.empty(ctx, 1)
	if err != nil {
		return nil, err
	}
	all, closeAll, err := openAll(lib, servers, contenders)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	for _, p := range all { // so that no script has to be loaded later
		if err := pair(ctx, p, "warm-up"); err != nil {
			return nil, err
		}
	}
	if lib.Queues { // nor a script that only contention needs
		if _, err := contend(ctx, all, contenders, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	monitor, err := servers[0].Monitor(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, monitor.Close()) }()
	m := Measures{}
	if err := countPairs(ctx, monitor, all[0], m); err != nil {
		return nil, err
	}
	if lib.Floor && !lib.Queues {
		return m, nil
	}
	return m, countHandOffs(ctx, monitor, all, s.window, m)
}

const countedPairs = 100

func countPairs(ctx context.Context, monitor *server.Monitor, p peer.Peer, m Measures) error {
	count := func(lock func(context.Context, string) (peer.Hold, error)) (server.Calls, error) {
		if _, err := monitor.Count(ctx); err != nil { // discards the earlier ones
			return server.Calls{}, err
		}
		for range countedPairs {
			hold, err := lock(ctx, "pair")
			if err != nil {
				return server.Calls{}, err
			}
			if err := hold.Release(ctx); err != nil {
				return server.Calls{}, err
			}
		}
		return monitor.Count(ctx)
	}
	c, err := count(p.Lock)
	if err != nil {
		return err
	}
	m[insideWrite], m["sent, pair"] = float64(c.Inside)/countedPairs, float64(c.Sent)/countedPairs
	if reader, ok := p.(peer.Reader); ok {
		if c, err = count(reader.RLock); err != nil {
			return err
		}
		m[insideRead] = float64(c.Inside) / countedPairs
	}
	return nil
}

// countHandOffs counts so many hand-offs that the calls of the contenders that give up at the end do not matter:
// MONITOR slows a server down, but a hand-off still takes less than a millisecond.
func countHandOffs(
	ctx context.Context, monitor *server.Monitor, all []peer.Peer, window time.Duration, m Measures,
) error {
	if _, err := monitor.Count(ctx); err != nil {
		return err
	}
	played, err := contend(ctx, all, contenders, window)
	if err != nil {
		return err
	}
	c, err := monitor.Count(ctx)
	if err != nil {
		return err
	}
	var handed float64
	for _, one := range played {
		handed += float64(one.handOffs)
	}
	if handed > 0 {
		m[insideHandOff], m["sent, hand-off"] = float64(c.Inside)/handed, float64(c.Sent)/handed
	}
	return nil
}

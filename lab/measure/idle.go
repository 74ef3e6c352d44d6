package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

const perRefresh = "per refresh"

const idleWaiters = 64

// idle measures the waiting for a lock that is held for long.
func idle() Workload {
	return Workload{
		Name:  "idle",
		About: "64 goroutines of one client wait for a name that another client holds; by MONITOR",
		Columns: []Column{
			{Name: "sent/s", Digits: 1}, {Name: "inside/s", Digits: 1}, {Name: perRefresh, Unit: "commands", Digits: 1},
		},
		Points: []int{0}, Once: true,
		Peers:   peer.Select(func(l peer.Library) bool { return locks(l) && (!l.Floor || l.Queues) }),
		Measure: measureIdle,
	}
}

// idleWindow spans several refreshes of any library.
const idleWindow = 5 * time.Second

func measureIdle(ctx context.Context, s *site, lib peer.Library, _ int) (_ Measures, err error) {
	servers, err := s.empty(ctx, 1)
	if err != nil {
		return nil, err
	}
	holder, err := open(lib, servers, longTTL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, holder.Close()) }()
	p, err := open(lib, servers, longTTL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if _, err := holder.Lock(ctx, "name"); err != nil {
		return nil, err
	}
	monitor, err := servers[0].Monitor(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, monitor.Close()) }()

	waiting, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range idleWaiters {
		all.Go(func() { _, _ = p.Lock(waiting, "name") }) // it ends with stop
	}
	defer all.Wait()
	defer stop()
	return countIdle(ctx, monitor)
}

// countIdle begins when the waiters have settled. The benchmark does not know a library's refresh, so every command
// sent while nothing happens counts as one: a refresh is the command itself and the calls of its script.
func countIdle(ctx context.Context, monitor *server.Monitor) (Measures, error) {
	pause(ctx, 2*time.Second)
	if _, err := monitor.Count(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	pause(ctx, idleWindow)
	c, err := monitor.Count(ctx)
	if err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	m := Measures{"sent/s": float64(c.Sent) / took, "inside/s": float64(c.Inside) / took}
	if c.Sent > 0 {
		m[perRefresh] = float64(c.Sent+c.Inside) / float64(c.Sent)
	}
	return m, nil
}

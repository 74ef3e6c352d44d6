package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

const idleWaiters = 64

// idleWindow spans several refreshes of any library.
const idleWindow = 5 * time.Second

// idle measures the waiting for a lock that is held for long.
func idle() Workload {
	return Workload{
		Name:    "idle",
		About:   "64 goroutines of one client wait for a name that another client holds; by MONITOR",
		Columns: []Column{{Name: "sent/s", Digits: 1}, {Name: "inside/s", Digits: 1}},
		Points:  []int{0}, Once: true, Peers: peer.Select(waits), Measure: measureIdle,
	}
}

func measureIdle(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
	return s.on(lib, 1, 2, longTTL, func(servers []*testredis.Server, all []peer.Peer) (_ Measures, err error) {
		if _, err := all[0].Lock(ctx, "name"); err != nil {
			return nil, err
		}
		monitor, err := server.StartMonitor(servers[0])
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, monitor.Close()) }()
		waiting, stop := context.WithCancel(ctx)
		var waiters sync.WaitGroup
		for range idleWaiters {
			waiters.Go(func() { _, _ = all[1].Lock(waiting, "name") }) // it ends with stop
		}
		defer waiters.Wait()
		defer stop()
		pause(ctx, 2*time.Second) // until the waiters have settled
		if _, err := monitor.Count(); err != nil {
			return nil, err
		}
		began := time.Now()
		pause(ctx, idleWindow)
		c, err := monitor.Count()
		took := time.Since(began).Seconds()
		return Measures{"sent/s": float64(c.Sent) / took, "inside/s": float64(c.Inside) / took}, err
	})
}

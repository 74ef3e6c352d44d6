package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

// What the goroutines of a process gain if they share its hold on the server. A client stands for a process.

const (
	worstShare  = "share off"
	perClient   = 16
	storming    = 64
	sectionTime = time.Millisecond
)

// ourForms are this library's lease and its RWMutex.
func ourForms() []peer.Library { return append(peer.Named(peer.Ours), peer.SharedHolds(0)) }

// shared measures one name that all goroutines of some processes want.
func shared() Workload {
	others := peer.Named(peer.FloorQueue, peer.Ours, peer.RedsyncRueidis, peer.Rueidislock)
	return Workload{
		Name:  "shared",
		About: "64 goroutines, of one client or 16 each of four, want one name",
		Columns: []Column{
			{Name: "locks/s", Ratio: true, More: true},
			{Name: fairness, Digits: 2},
			{Name: worstShare, Unit: "%"},
			{Name: "longest wait", Unit: "ms"},
		},
		Axis: "clients", Points: []int{1, 4}, Over: peer.FloorQueue, Peers: append(others, peer.SharedHolds(0)),
		Measure: measureTurns,
	}
}

func measureTurns(ctx context.Context, s *site, lib peer.Library, clients int) (Measures, error) {
	played, took, err := contention(ctx, s, lib, clients, 4*perClient)
	if err != nil {
		return nil, err
	}
	m := summary(played, took)
	m[worstShare] = off(played, clients)
	return m, nil
}

// off returns the greatest deviation of a client from its equal share, in percent.
func off(all []*contender, clients int) (worst float64) {
	shares, sum := make([]float64, clients), 0.0
	for i, c := range all {
		shares[i%clients] += float64(c.locks)
		sum += float64(c.locks)
	}
	for _, share := range shares {
		worst = max(worst, 100*math.Abs(share*float64(clients)/sum-1))
	}
	return worst
}

// readStorm measures a writer against readers of another process that overlap without end.
func readStorm() Workload {
	return Workload{
		Name:    "read-storm",
		About:   "64 goroutines of one client read for 1 ms again and again; another client writes",
		Columns: []Column{{Name: p50, Unit: "us"}, {Name: "longest wait", Unit: "us"}, {Name: "reads/s"}},
		Points:  []int{0}, Peers: ourForms(),
		Measure: func(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
			return measureShared(ctx, s, lib, 2, func(ctx context.Context, _ *server.Server, all []peer.Peer) (Measures, error) {
				return storm(ctx, s.window, all[0], all[1])
			})
		},
	}
}

func measureShared(
	ctx context.Context, s *site, lib peer.Library, clients int,
	measure func(context.Context, *server.Server, []peer.Peer) (Measures, error),
) (_ Measures, err error) {
	servers, err := s.empty(ctx, 1)
	if err != nil {
		return nil, err
	}
	all, closeAll, err := openAll(lib, servers, clients)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	return measure(ctx, servers[0], all)
}

// share has goroutines take the lock in turns of the clients until the window is over, and returns the number of
// acquisitions.
func share(
	ctx context.Context, window time.Duration, clients []peer.Peer, goroutines int, writes func(i int) bool,
	section time.Duration,
) (n int, err error) {
	ctx, stop := context.WithTimeout(ctx, window)
	defer stop()
	counts, errs := make([]int, goroutines), make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			client := clients[g%len(clients)]
			for i := g; errs[g] == nil && ctx.Err() == nil; i++ {
				take := client.(peer.Reader).RLock
				if writes(i) {
					take = client.Lock
				}
				hold, err := take(ctx, "name")
				if err != nil {
					if ctx.Err() == nil {
						errs[g] = err
					}
					return
				}
				pause(ctx, section)
				errs[g] = hold.Release(context.WithoutCancel(ctx))
				counts[g]++
			}
		})
	}
	all.Wait()
	for g := range goroutines {
		n += counts[g]
	}
	return n, errors.Join(errs...)
}

func storm(ctx context.Context, window time.Duration, readers, writer peer.Peer) (Measures, error) {
	var waits []time.Duration
	var failure error
	over, end := context.WithTimeout(ctx, window)
	defer end()
	var writing sync.WaitGroup
	writing.Go(func() {
		for over.Err() == nil {
			pause(over, 20*time.Millisecond)
			asked := time.Now()
			hold, err := writer.Lock(over, "name")
			waits = append(waits, time.Since(asked))
			if err != nil {
				return // the window is over
			}
			if failure = hold.Release(ctx); failure != nil {
				return
			}
		}
	})
	began := time.Now()
	n, err := share(ctx, window, []peer.Peer{readers}, storming, func(int) bool { return false }, sectionTime)
	took := time.Since(began)
	writing.Wait()
	if err = errors.Join(err, failure); err != nil {
		return nil, err
	}
	return Measures{
		p50: micros(medianTime(waits)), "longest wait": micros(slices.Max(waits)), "reads/s": float64(n) / took.Seconds(),
	}, nil
}

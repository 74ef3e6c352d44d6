package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

const (
	perSecond    = "pairs/s"
	serverMicros = "server CPU"
	clientMicros = "client CPU"
)

func pairColumns() []Column {
	return []Column{
		{Name: perSecond, Ratio: true, More: true},
		{Name: serverMicros, Unit: "us/pair", Digits: 1, Ratio: true},
		{Name: clientMicros, Unit: "us/pair", Digits: 1, Ratio: true},
	}
}

// throughput measures goroutines of one client that do not contend.
func throughput() Workload {
	return Workload{
		Name:    "throughput",
		About:   "goroutines of one client, each with a name of its own, lock and release it again and again",
		Columns: pairColumns(), Axis: "goroutines", Points: []int{1, 8, 64, 256, 1024}, Over: peer.FloorLua,
		Peers: peer.Select(pairs),
		Measure: func(ctx context.Context, s *site, lib peer.Library, goroutines int) (Measures, error) {
			return measurePairs(ctx, s, lib, 1, goroutines)
		},
	}
}

// quorum is the same over several masters.
func quorum() Workload {
	return Workload{
		Name:    "quorum",
		About:   "the same with 64 goroutines over a number of masters",
		Columns: pairColumns(), Axis: "masters", Points: []int{1, 3, 5}, Over: peer.FloorSet,
		Peers: peer.Select(func(l peer.Library) bool { return l.Quorum }),
		Measure: func(ctx context.Context, s *site, lib peer.Library, masters int) (Measures, error) {
			return measurePairs(ctx, s, lib, masters, 64)
		},
	}
}

func measurePairs(ctx context.Context, s *site, lib peer.Library, masters, goroutines int) (_ Measures, err error) {
	servers, err := s.empty(ctx, masters)
	if err != nil {
		return nil, err
	}
	p, err := open(lib, servers, peer.TTL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	// New masters of a quorum grant nothing at first. A name that was waited for then would count as contended.
	if err := pair(ctx, p, "first"); err != nil {
		return nil, err
	}
	if _, err := repeat(ctx, p, goroutines, 0); err != nil { // once for each: connections and scripts
		return nil, err
	}
	return timePairs(ctx, s.window, servers, p, goroutines)
}

func timePairs(
	ctx context.Context, window time.Duration, servers []*server.Server, p peer.Peer, goroutines int,
) (Measures, error) {
	before, err := readCPU(ctx, servers)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	done, err := repeat(ctx, p, goroutines, window)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := readCPU(ctx, servers)
	if err != nil {
		return nil, err
	}
	used := after.since(before)
	return Measures{
		perSecond:    done / took.Seconds(),
		serverMicros: micros(used.server) / done,
		clientMicros: micros(used.client) / done,
	}, nil
}

// repeat has every goroutine repeat the pair on its own name until the time is over, and at least once. It returns the
// number of pairs.
func repeat(ctx context.Context, p peer.Peer, goroutines int, window time.Duration) (float64, error) {
	var over atomic.Bool
	timer := time.AfterFunc(window, func() { over.Store(true) })
	defer timer.Stop()
	counts, errs := make([]float64, goroutines), make([]error, goroutines)
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			name, n := "name-"+strconv.Itoa(i), 0
			for {
				if errs[i] = pair(ctx, p, name); errs[i] != nil {
					return
				}
				n++
				counts[i] = float64(n)
				if over.Load() {
					return
				}
			}
		})
	}
	all.Wait()
	var sum float64
	for i := range counts {
		if errs[i] != nil {
			return 0, errs[i]
		}
		sum += counts[i]
	}
	return sum, nil
}

package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/peer"
)

const perSecond = "pairs/s"

func pairColumns() []Column {
	return []Column{
		{Name: perSecond, Ratio: true, More: true},
		{Name: serverShare, Unit: "us/pair", Digits: 1, Ratio: true},
		{Name: clientShare, Unit: "us/pair", Digits: 1, Ratio: true},
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

func measurePairs(ctx context.Context, s *site, lib peer.Library, masters, goroutines int) (Measures, error) {
	return s.on(lib, masters, 1, peer.TTL, func(servers []*testredis.Server, all []peer.Peer) (Measures, error) {
		// New masters of a quorum grant nothing at first. A name that was waited for then would count as contended.
		if err := warmUp(ctx, all); err != nil {
			return nil, err
		}
		if _, err := repeat(ctx, all[0], goroutines, 0); err != nil { // once for each: connections and scripts
			return nil, err
		}
		before, began := readCPU(servers), time.Now()
		done, err := repeat(ctx, all[0], goroutines, s.window)
		if err != nil {
			return nil, err
		}
		took, used := time.Since(began), readCPU(servers).since(before)
		return Measures{
			perSecond: done / took.Seconds(), serverShare: micros(used.server) / done, clientShare: micros(used.client) / done,
		}, nil
	})
}

// repeat has every goroutine repeat the pair on its own name until the time is over, and at least once. It returns the
// number of pairs.
func repeat(ctx context.Context, p peer.Peer, goroutines int, window time.Duration) (sum float64, err error) {
	var over atomic.Bool
	timer := time.AfterFunc(window, func() { over.Store(true) })
	defer timer.Stop()
	names, counts := numbered(goroutines), make([]float64, goroutines)
	err = together(goroutines, func(i int) (err error) {
		for n := 1.0; err == nil; n++ {
			if err = pair(ctx, p.Lock, names[i]); err == nil {
				counts[i] = n
			}
			if over.Load() {
				return err
			}
		}
		return err
	})
	for _, n := range counts {
		sum += n
	}
	return sum, err
}

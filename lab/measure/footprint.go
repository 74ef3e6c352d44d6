package main

import (
	"context"
	"runtime"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

const (
	heldAtOnce = 10000
	longTTL    = time.Minute // nothing expires or is renewed during the measurement
)

// footprint measures the bytes of a lock. Its bytes in Redis are the growth of used_memory: that of the keys and of the
// tables that lead to them.
func footprint() Workload {
	return Workload{
		Name:    "bytes",
		About:   "bytes of a write lock: in Redis while held and after the release, in the client; 10,000 held at once",
		Columns: []Column{{Name: "held"}, {Name: "left"}, {Name: "client heap"}, {Name: "client stacks"}},
		Points:  []int{0}, Once: true, Peers: peer.Select(pairs), Measure: measureBytes,
	}
}

func measureBytes(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
	return s.on(lib, 1, 1, longTTL, func(servers []*testredis.Server, all []peer.Peer) (Measures, error) {
		if err := warmUp(ctx, all); err != nil {
			return nil, err
		}
		if err := empty(servers...); err != nil { // keys that belong to no lock are made again by the next lock
			return nil, err
		}
		k := newKeeper(all[0], heldAtOnce)
		before := server.Used(servers[0])
		heap, stacks := liveBytes()
		if err := k.take(ctx); err != nil {
			return nil, err
		}
		heapNow, stacksNow := liveBytes()
		held := server.Used(servers[0])
		err := k.each(func(i int) error { return k.holds[i].Release(ctx) })
		left := server.Used(servers[0])
		return Measures{
			"client heap": (heapNow - heap) / heldAtOnce, "client stacks": (stacksNow - stacks) / heldAtOnce,
			"held": float64(held-before) / heldAtOnce, "left": float64(left-before) / heldAtOnce,
		}, err
	})
}

// liveBytes is the memory in use after a collection.
func liveBytes() (heap, stacks float64) {
	runtime.GC()
	runtime.GC() // the second one frees what finalizers and pools held
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc), float64(s.StackInuse)
}

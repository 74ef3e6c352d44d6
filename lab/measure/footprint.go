package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

const (
	bytesHeld = "held"
	bytesLeft = "left"
	forever   = "forever"
	heapHeld  = "client heap"
)

// footprint measures the bytes of a lock. Its bytes in Redis are the growth of used_memory; MEMORY USAGE of the keys
// leaves out the tables that lead to them.
func footprint() Workload {
	return Workload{
		Name:  "bytes",
		About: "bytes of a write lock: in Redis while held and after the release, in the client; 10,000 held at once",
		Columns: []Column{
			{Name: bytesHeld},
			{Name: "keys alone"},
			{Name: bytesLeft},
			{Name: "keys alone, left"},
			{Name: "left for", Unit: "s"},
			{Name: forever, Unit: "keys"},
			{Name: heapHeld},
			{Name: "client stacks"},
		},
		Points: []int{0}, Once: true, Peers: peer.Select(pairs), Measure: measureBytes,
	}
}

const (
	heldAtOnce = 10000
	longTTL    = time.Minute // nothing expires or is renewed during the measurement
)

func measureBytes(ctx context.Context, s *site, lib peer.Library, _ int) (_ Measures, err error) {
	servers, err := s.empty(ctx, 1)
	if err != nil {
		return nil, err
	}
	p, err := open(lib, servers, longTTL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := pair(ctx, p, "warm-up"); err != nil {
		return nil, err
	}
	if servers, err = s.empty(ctx, 1); err != nil { // keys that belong to no lock are made again by the next lock
		return nil, err
	}
	k := &keeper{peer: p, names: numbered(heldAtOnce), holds: make([]peer.Hold, heldAtOnce)}
	empty, err := servers[0].Used(ctx)
	if err != nil {
		return nil, err
	}
	heap, stacks := liveBytes()
	if err := k.take(ctx); err != nil {
		return nil, err
	}
	heapNow, stacksNow := liveBytes()
	m := Measures{heapHeld: (heapNow - heap) / heldAtOnce, "client stacks": (stacksNow - stacks) / heldAtOnce}
	if err := readKeys(ctx, servers[0], empty, m, bytesHeld, "keys alone"); err != nil {
		return nil, err
	}
	if err := k.release(ctx); err != nil {
		return nil, err
	}
	return m, readKeys(ctx, servers[0], empty, m, bytesLeft, "keys alone, left")
}

// readKeys measures the current state, in bytes for each lock.
func readKeys(ctx context.Context, one *server.Server, empty int64, m Measures, used, keys string) error {
	now, err := one.Used(ctx)
	if err != nil {
		return err
	}
	f, err := one.Footprint(ctx)
	m[used], m[keys] = float64(now-empty)/heldAtOnce, float64(f.Bytes)/heldAtOnce
	m["left for"], m[forever] = f.Longest.Seconds(), float64(f.Forever)
	return err
}

// liveBytes is the memory in use after a collection.
func liveBytes() (heap, stacks float64) {
	runtime.GC()
	runtime.GC() // the second one frees what finalizers and pools held
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc), float64(s.StackInuse)
}

// release releases every hold.
func (k *keeper) release(ctx context.Context) error {
	errs := make([]error, takers)
	var all sync.WaitGroup
	for t := range takers {
		all.Go(func() {
			for i := t; i < len(k.holds); i += takers {
				errs[t] = errors.Join(errs[t], k.holds[i].Release(ctx))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

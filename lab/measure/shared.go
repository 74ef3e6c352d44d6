package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/peer"
)

// readStorm measures readers of a process that overlap without end, beside a writer of another one.
func readStorm() Workload {
	return Workload{
		Name:    "read-storm",
		About:   "64 goroutines of one client read for 1 ms again and again; another client writes",
		Columns: []Column{{Name: "reads/s"}, {Name: "writes/s"}},
		Points:  []int{0}, Peers: append(peer.Named(peer.Ours), peer.SharedHolds()),
		Measure: func(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
			return s.on(lib, 1, 2, peer.TTL, func(_ []*testredis.Server, all []peer.Peer) (Measures, error) {
				return storm(ctx, s.window, all[0], all[1])
			})
		},
	}
}

// storm has one goroutine write now and then, and all others read.
func storm(ctx context.Context, window time.Duration, readers, writer peer.Peer) (Measures, error) {
	over, stop := context.WithTimeout(ctx, window)
	defer stop()
	var reads, writes atomic.Int64
	began := time.Now()
	err := together(sharers+1, func(i int) error {
		lock, done, before, inside := readers.(peer.Reader).RLock, &reads, time.Duration(0), time.Millisecond
		if i == sharers {
			lock, done, before, inside = writer.Lock, &writes, 20*time.Millisecond, 0
		}
		for {
			pause(over, before)
			hold, err := lock(over, "name")
			if over.Err() != nil && err != nil {
				return nil
			} else if err != nil {
				return err
			}
			pause(over, inside)
			if err := hold.Release(ctx); err != nil {
				return err
			}
			done.Add(1)
		}
	})
	took := time.Since(began).Seconds()
	return Measures{"reads/s": float64(reads.Load()) / took, "writes/s": float64(writes.Load()) / took}, err
}

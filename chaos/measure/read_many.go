package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/chaos/measure/internal/server"
	"github.com/seed74116694/fencelock/chaos/peer"
)

const (
	manyClients = 8
	longSection = 10 * time.Millisecond
	writeEvery  = time.Second
	leastWrites = 2
)

// readMany measures the load on a server from processes that constantly read a value while it changes now and then.
func readMany() Workload {
	return Workload{
		Name:    "read-many",
		About:   "goroutines of each of eight clients read one name for 10 ms again and again; once a second a client writes",
		Columns: []Column{{Name: "commands/s"}, {Name: "reads/s"}},
		Axis:    "goroutines a client", Points: []int{8, 64},
		Peers: []peer.Library{peer.SharedHolds(0), peer.SharedHolds(lingerLong)},
		Measure: func(ctx context.Context, s *site, lib peer.Library, goroutines int) (Measures, error) {
			measure := func(ctx context.Context, one *server.Server, all []peer.Peer) (Measures, error) {
				return readWhileWritten(ctx, max(s.window, leastWrites*writeEvery), one, all, goroutines)
			}
			return measureShared(ctx, s, lib, manyClients, measure)
		},
	}
}

func readWhileWritten(
	ctx context.Context, window time.Duration, one *server.Server, all []peer.Peer, goroutines int,
) (Measures, error) {
	before, err := one.Commands(ctx)
	if err != nil {
		return nil, err
	}
	var writing sync.WaitGroup
	var failure error
	over, end := context.WithTimeout(ctx, window)
	defer end()
	writing.Go(func() { failure = writeRarely(over, all[0]) })
	began := time.Now()
	n, err := share(ctx, window, all, goroutines*len(all), func(int) bool { return false }, longSection)
	took := time.Since(began).Seconds()
	writing.Wait()
	if err = errors.Join(err, failure); err != nil {
		return nil, err
	}
	after, err := one.Commands(ctx)
	return Measures{"commands/s": float64(after-before) / took, "reads/s": float64(n) / took}, err
}

func writeRarely(over context.Context, writer peer.Peer) error {
	for pause(over, writeEvery); over.Err() == nil; pause(over, writeEvery) {
		hold, err := writer.Lock(over, "name")
		if err != nil {
			return nil //nolint:nilerr // the window is over
		}
		if err := hold.Release(context.WithoutCancel(over)); err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
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

// countedPairs is the number of pairs that a figure is the mean of.
const countedPairs = 100

func measureCalls(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
	return s.on(lib, 1, contenders, peer.TTL, func(servers []*testredis.Server, all []peer.Peer) (_ Measures, err error) {
		if err := warmUp(ctx, all); err != nil {
			return nil, err
		}
		if lib.Queues { // nor a script that only contention needs
			if _, err := contend(ctx, all, contenders, 100*time.Millisecond); err != nil {
				return nil, err
			}
		}
		monitor, err := server.StartMonitor(servers[0])
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, monitor.Close()) }()
		m := Measures{}
		count := func(inside, sent string, do func() (n float64, err error)) {
			_, failed := monitor.Count() // discards the earlier ones
			n, notDone := do()
			c, uncounted := monitor.Count()
			if err = errors.Join(err, failed, notDone, uncounted); n > 0 {
				m[inside], m[sent] = float64(c.Inside)/n, float64(c.Sent)/n
			}
		}
		pairs := func(lock locking) func() (float64, error) {
			return func() (float64, error) {
				return countedPairs, again(ctx, lock, []string{"pair"}, countedPairs)
			}
		}
		count(insideWrite, "sent, pair", pairs(all[0].Lock))
		if reader, ok := all[0].(peer.Reader); ok {
			count(insideRead, "sent, reader's pair", pairs(reader.RLock))
		}
		if !lib.Floor || lib.Queues {
			count(insideHandOff, "sent, hand-off", func() (float64, error) { return handedOn(ctx, all, s.window) })
		}
		return m, err
	})
}

// handedOn returns the number of hand-offs in the window. They are so many that the calls of the contenders that give
// up at the end do not matter: MONITOR slows a server down, but a hand-off still takes less than a millisecond.
func handedOn(ctx context.Context, all []peer.Peer, window time.Duration) (n float64, err error) {
	played, err := contend(ctx, all, contenders, window)
	for _, one := range played {
		n += float64(one.handOffs)
	}
	return n, err
}

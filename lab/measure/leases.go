package main

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/peer"
)

const (
	serverShare = "server CPU"
	clientShare = "client CPU"
	lost        = "lost"
)

// keeping measures many locks that are held and renewed. If a library leaves the renewal to its user, a goroutine for
// each lock extends it twice in a TTL.
func keeping(name string, ttl time.Duration, points ...int) Workload {
	return Workload{
		Name:  name,
		About: "locks of one client, held and kept alive with a TTL of " + ttl.String() + ", for one TTL at the least",
		Columns: []Column{
			{Name: serverShare, Unit: "%", Digits: 1, Ratio: true},
			{Name: clientShare, Unit: "%", Digits: 1, Ratio: true},
			{Name: lost},
		},
		Axis: "leases", Points: points, Over: peer.FloorBatch,
		Peers: peer.Select(func(l peer.Library) bool { return l.Keeps }),
		Measure: func(ctx context.Context, s *site, lib peer.Library, leases int) (Measures, error) {
			return s.on(lib, 1, 1, ttl, func(servers []*testredis.Server, all []peer.Peer) (Measures, error) {
				return measureLeases(ctx, servers, newKeeper(all[0], leases), ttl, max(s.window, ttl))
			})
		},
	}
}

func measureLeases(
	ctx context.Context, servers []*testredis.Server, k *keeper, ttl, window time.Duration,
) (Measures, error) {
	ctx, stop := context.WithCancel(ctx)
	defer k.extending.Wait()
	defer stop()
	k.every = ttl / 2
	if err := k.take(ctx); err != nil {
		return nil, err
	}
	pause(ctx, ttl) // the renewals have settled into their rhythm
	before, began := readCPU(servers), time.Now()
	pause(ctx, window)
	took := time.Since(began).Seconds()
	used := readCPU(servers).since(before)
	return Measures{
		serverShare: 100 * used.server.Seconds() / took, clientShare: 100 * used.client.Seconds() / took,
		lost: float64(k.lost()),
	}, nil
}

// keeper holds many locks of one peer.
type keeper struct {
	peer      peer.Peer
	names     []string
	holds     []peer.Hold
	every     time.Duration // between two extensions of a hold, if the user extends it
	extending sync.WaitGroup
	gone      atomic.Int64 // holds whose extension failed
}

func newKeeper(p peer.Peer, n int) *keeper {
	return &keeper{peer: p, names: numbered(n), holds: make([]peer.Hold, n)}
}

// takers is the number of goroutines that take the locks: enough to be quick, too few to dominate the measurement.
const takers = 64

// each calls do for each of the locks.
func (k *keeper) each(do func(i int) error) error {
	return together(takers, func(t int) (err error) {
		for i := t; i < len(k.names) && err == nil; i += takers {
			err = do(i)
		}
		return err
	})
}

func (k *keeper) take(ctx context.Context) error {
	return k.each(func(i int) (err error) {
		k.holds[i], err = k.peer.Lock(ctx, k.names[i])
		if e, ok := k.holds[i].(peer.Extender); ok && k.every > 0 {
			k.extending.Go(func() { k.extend(ctx, e) })
		}
		return err
	})
}

// extend goes on until ctx ends, or the hold is lost.
func (k *keeper) extend(ctx context.Context, hold peer.Extender) {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := hold.Extend(ctx); err != nil && ctx.Err() == nil {
			k.gone.Add(1)
			return
		}
	}
}

func (k *keeper) lost() int {
	n := int(k.gone.Load())
	for _, hold := range k.holds {
		if kept, ok := hold.(peer.Kept); ok && kept.Lost() {
			n++
		}
	}
	return n
}

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "name-" + strconv.Itoa(i)
	}
	return names
}

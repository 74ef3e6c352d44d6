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
	serverShare = "server CPU"
	clientShare = "client CPU"
	lost        = "lost"
)

func leases5s() Workload {
	return keeping("leases-5s", 5*time.Second, 1000, 10000)
}

func leases2s() Workload {
	return keeping("leases-2s", 2*time.Second, 10000)
}

// keeping measures many locks that are held and renewed. If a library leaves the renewal to its user, a goroutine for
// each lock extends it twice in a TTL.
func keeping(name string, ttl time.Duration, points ...int) Workload {
	return Workload{
		Name:  name,
		About: "locks of one client, held and kept alive with a TTL of " + ttl.String() + ", for one TTL at the least",
		Columns: []Column{
			{Name: serverShare, Unit: "%", Digits: 1, Ratio: true},
			{Name: clientShare, Unit: "%", Digits: 1, Ratio: true},
			{Name: "commands/s", Ratio: true},
			{Name: lost},
		},
		Axis: "leases", Points: points, Over: peer.FloorBatch,
		Peers: peer.Select(func(l peer.Library) bool { return l.Keeps }),
		Measure: func(ctx context.Context, s *site, lib peer.Library, leases int) (Measures, error) {
			return measureLeases(ctx, s, lib, leases, ttl)
		},
	}
}

func measureLeases(ctx context.Context, s *site, lib peer.Library, n int, ttl time.Duration) (_ Measures, err error) {
	servers, err := s.empty(ctx, 1)
	if err != nil {
		return nil, err
	}
	p, err := open(lib, servers, ttl)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	k := &keeper{peer: p, names: numbered(n), holds: make([]peer.Hold, n), every: ttl / 2}
	ctx, stop := context.WithCancel(ctx)
	defer k.extending.Wait()
	defer stop()
	if err := k.take(ctx); err != nil {
		return nil, err
	}
	pause(ctx, ttl) // the renewals have settled into their rhythm
	m, err := observe(ctx, servers[0], max(s.window, ttl))
	if err != nil {
		return nil, err
	}
	m[lost] = float64(k.lost())
	return m, nil
}

// observe measures the costs during the window.
func observe(ctx context.Context, one *server.Server, window time.Duration) (Measures, error) {
	servers := []*server.Server{one}
	commands, err := one.Commands(ctx)
	if err != nil {
		return nil, err
	}
	before, err := readCPU(ctx, servers)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	pause(ctx, window)
	took := time.Since(began).Seconds()
	after, err := readCPU(ctx, servers)
	if err != nil {
		return nil, err
	}
	until, err := one.Commands(ctx)
	used := after.since(before)
	return Measures{
		serverShare: 100 * used.server.Seconds() / took, clientShare: 100 * used.client.Seconds() / took,
		"commands/s": float64(until-commands) / took,
	}, err
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

// takers is the number of goroutines that take the locks: enough to be quick, too few to dominate the measurement.
const takers = 64

func (k *keeper) take(ctx context.Context) error {
	errs := make([]error, takers)
	var all sync.WaitGroup
	for t := range takers {
		all.Go(func() {
			for i := t; i < len(k.names) && errs[t] == nil; i += takers {
				k.holds[i], errs[t] = k.peer.Lock(ctx, k.names[i])
				if e, ok := k.holds[i].(peer.Extender); ok && k.every > 0 {
					k.extending.Go(func() { k.extend(ctx, e) })
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
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

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

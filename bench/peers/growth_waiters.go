package main

import (
	"context"
	"errors"

	"github.com/seed74116694/fencelock/bench/peers/internal/peer"
	"github.com/seed74116694/fencelock/rwlock"
)

// growthWaiters measures how the server's time grows with the queue of a lock.
func growthWaiters() Workload {
	return Workload{
		Name:    "growth-waiters",
		About:   "server time of one call while others wait: queue, leave the queue, hand on, renew; by SLOWLOG",
		Columns: growthColumns(), Axis: "waiters", Points: []int{10, 1000, 10000},
		Peers: peer.Named(peer.Ours), Measure: measureGrowthWaiters,
	}
}

func measureGrowthWaiters(ctx context.Context, s *site, _ peer.Library, waiters int) (_ Measures, err error) {
	g, err := newStage(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close(ctx)) }()
	first, err := g.probe.Locker.Lock(ctx, "name")
	if err != nil {
		return nil, err
	}
	over, stop := context.WithCancel(ctx)
	granted := make(chan peer.Hold)
	ask := func(ctx context.Context, p *peer.Fencelock) (peer.Hold, error) { return p.Lock(ctx, "name") }
	end, err := g.lineUp(over, waiters, ask, func(h peer.Hold) {
		select {
		case granted <- h:
		case <-over.Done():
		}
	})
	if err != nil {
		stop()
		return nil, err
	}
	defer end()
	defer stop()

	times := series{}
	err = errors.Join(g.queueAndLeave(ctx, times), g.renew(ctx, first, times))
	if err == nil {
		err = first.Release(ctx)
	}
	if err == nil {
		err = g.handOn(ctx, granted, min(growTurns, waiters-1), times)
	}
	return times.measures(), err
}

func (g *stage) renew(ctx context.Context, lease *rwlock.Lease, times series) error {
	for range growTurns {
		took, err := g.timed(ctx, probeName, func() error { return lease.Renew(ctx) })
		if err != nil {
			return err
		}
		times[growRenew] = append(times[growRenew], took)
	}
	return nil
}

// queueAndLeave has the probe queue behind all other waiters and give up again.
func (g *stage) queueAndLeave(ctx context.Context, times series) error {
	for range growTurns {
		asking, giveUp := context.WithCancel(ctx)
		done := make(chan error, 1)
		took, err := g.timed(ctx, probeName, func() error {
			go func() {
				_, err := g.probe.Lock(asking, "name")
				done <- err
			}()
			return g.waiting(ctx, 1)
		})
		if err != nil {
			giveUp()
			return err
		}
		times[growAcquire] = append(times[growAcquire], took)
		took, err = g.timed(ctx, probeName, func() error {
			giveUp()
			<-done
			return nil
		})
		if err != nil {
			return err
		}
		times[growRelease] = append(times[growRelease], took)
	}
	return nil
}

// handOn has one of the crowd after the other release. The queue gets shorter by as many turns, a small part of it at
// the lengths that matter.
func (g *stage) handOn(ctx context.Context, granted <-chan peer.Hold, turns int, times series) error {
	hold, err := next(ctx, granted)
	if err != nil {
		return err
	}
	for range turns {
		took, err := g.timed(ctx, crowdName, func() error { return hold.Release(ctx) })
		if err != nil {
			return err
		}
		times[growHandOff] = append(times[growHandOff], took)
		if hold, err = next(ctx, granted); err != nil {
			return err
		}
	}
	return hold.Release(ctx)
}

func next(ctx context.Context, granted <-chan peer.Hold) (peer.Hold, error) {
	select {
	case hold := <-granted:
		return hold, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

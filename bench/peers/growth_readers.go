package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/bench/peers/internal/peer"
	"github.com/seed74116694/fencelock/rwlock"
)

// growthReaders measures how the server's time grows with the readers of a lock.
func growthReaders() Workload {
	return Workload{
		Name:    "growth-readers",
		About:   "server time of one call beside others that read: join, leave, renew; of letting them in, per reader",
		Columns: growthColumns(), Axis: "readers", Points: []int{1, 100, 1000},
		Peers: peer.Named(peer.Ours), Measure: measureGrowthReaders,
	}
}

// admittedPerCall is the number of readers that one call admits. The readers behind them come with the next call.
const admittedPerCall = 64

// admissions is how often all readers are admitted: each time they have to queue anew.
const admissions = 5

func measureGrowthReaders(ctx context.Context, s *site, _ peer.Library, readers int) (_ Measures, err error) {
	g, err := newStage(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close(ctx)) }()
	times := series{}
	for turn := range admissions {
		if err := g.admit(ctx, readers, times, turn == 0); err != nil {
			return nil, err
		}
	}
	return times.measures(), nil
}

// admit has the readers queue behind the probe's write lock, and releases it. With goOn it also times the calls of one
// reader while the readers hold the lock.
func (g *stage) admit(ctx context.Context, readers int, times series, goOn bool) error {
	writer, err := g.probe.Lock(ctx, "name")
	if err != nil {
		return err
	}
	reading, leave := make(chan struct{}), make(chan struct{})
	ask := func(ctx context.Context, p *peer.Fencelock) (peer.Hold, error) { return p.RLock(ctx, "name") }
	failures := make(chan error, readers)
	end, err := g.lineUp(ctx, readers, ask, func(h peer.Hold) {
		reading <- struct{}{}
		<-leave
		failures <- h.Release(context.WithoutCancel(ctx))
	})
	if err != nil {
		return errors.Join(err, writer.Release(ctx))
	}
	took, err := g.timed(ctx, probeName, func() error { return writer.Release(ctx) })
	times[growHandOff] = append(times[growHandOff], took/time.Duration(min(readers, admittedPerCall)))
	for range readers {
		<-reading
	}
	if err == nil && goOn {
		err = g.readBeside(ctx, times)
	}
	close(leave)
	for range readers {
		err = errors.Join(err, <-failures)
	}
	end()
	return err
}

// readBeside has the probe join the readers, renew, and leave them.
func (g *stage) readBeside(ctx context.Context, times series) error {
	for range growTurns {
		var hold *rwlock.Lease
		for _, call := range []struct {
			name string
			do   func() error
		}{
			{growAcquire, func() (err error) { hold, err = g.probe.Locker.RLock(ctx, "name"); return err }},
			{growRenew, func() error { return hold.Renew(ctx) }},
			{growRelease, func() error { return hold.Release(ctx) }},
		} {
			took, err := g.timed(ctx, probeName, call.do)
			if err != nil {
				return err
			}
			times[call.name] = append(times[call.name], took)
		}
	}
	return nil
}

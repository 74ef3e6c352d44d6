package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/chaos/measure/internal/server"
	"github.com/seed74116694/fencelock/chaos/peer"
	"github.com/seed74116694/fencelock/rwlock"
)

const (
	growAcquire = "acquire"
	growRelease = "release"
	growHandOff = "hand-off"
	growRenew   = "renew"
)

func growthColumns() []Column {
	var all []Column
	for _, name := range []string{growAcquire, growRelease, growHandOff, growRenew} {
		all = append(all, Column{Name: name, Unit: "us", Digits: 1})
	}
	return all
}

// stage is a lock with a crowd around it, and a client that sends calls which the server times one by one.
type stage struct {
	server *server.Server
	probe  *peer.Fencelock
	crowd  []*peer.Fencelock
	waits  chan struct{} // one for each acquisition that has to wait
	stop   func(context.Context) error
}

const (
	probeName = "probe"
	crowdName = "crowd"
	// The crowd comes from several processes, like the many waiters of one name.
	crowdClients = 4
	// growTTL is long, so that nothing but the measured calls is renewed.
	growTTL = 10 * time.Minute
	// growTurns is how often each call is timed; the median counts.
	growTurns = 60
)

func newStage(ctx context.Context, s *site) (*stage, error) {
	servers, err := s.empty(ctx, 1)
	if err != nil {
		return nil, err
	}
	g := &stage{server: servers[0], waits: make(chan struct{}, 1<<15)}
	note := rwlock.WithTrace(&rwlock.Trace{Waiting: func(context.Context, rwlock.TraceEvent) { g.waits <- struct{}{} }})
	for i := range crowdClients + 1 {
		o := peer.Options{Addrs: []string{g.server.Addr}, TTL: growTTL, ClientName: crowdName}
		if i == 0 {
			o.ClientName = probeName
		}
		client, err := peer.Open(o, note)
		if err != nil {
			return nil, errors.Join(err, g.close(ctx))
		}
		if i == 0 {
			g.probe = client
			continue
		}
		g.crowd = append(g.crowd, client)
	}
	if g.stop, err = g.server.Timed(ctx); err != nil {
		return nil, errors.Join(err, g.close(ctx))
	}
	return g, nil
}

func (g *stage) close(ctx context.Context) (err error) {
	if g.stop != nil {
		err = g.stop(context.WithoutCancel(ctx))
	}
	for _, p := range append(g.crowd, g.probe) {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}
	return err
}

// scriptLimit bounds the wait for a script that the library sends in the background.
const scriptLimit = 10 * time.Second

// timed returns the server's time for the first script that the named client sent for the call.
func (g *stage) timed(ctx context.Context, client string, call func() error) (time.Duration, error) {
	if err := g.server.ForgetTimes(ctx); err != nil {
		return 0, err
	}
	if err := call(); err != nil {
		return 0, err
	}
	for end := time.Now().Add(scriptLimit); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, time.Millisecond) {
		if times, err := g.server.Times(ctx, client); err != nil || len(times) > 0 {
			return append(times, 0)[0], err
		}
	}
	return 0, fmt.Errorf("growth: %s has sent no script within %v", client, scriptLimit)
}

// waiting returns when n more acquisitions wait in the queue.
func (g *stage) waiting(ctx context.Context, n int) error {
	for range n {
		select {
		case <-g.waits:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// series are the times of each call.
type series map[string][]time.Duration

func (s series) measures() Measures {
	m := Measures{}
	for name, times := range s {
		m[name] = micros(medianTime(times))
	}
	return m
}

// lineUp has n goroutines ask for the name, spread over the crowd's clients, and returns when all of them wait. Each
// runs held after its grant; the returned function ends the remaining waiters, and waits for all.
func (g *stage) lineUp(
	ctx context.Context, n int, ask func(context.Context, *peer.Fencelock) (peer.Hold, error), held func(peer.Hold),
) (end func(), err error) {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if hold, err := ask(ctx, g.crowd[i%len(g.crowd)]); err == nil {
				held(hold)
			}
		})
	}
	end = func() {
		stop()
		all.Wait()
	}
	if err := g.waiting(ctx, n); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

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

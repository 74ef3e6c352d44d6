package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/bench/peers/internal/peer"
	"github.com/seed74116694/fencelock/bench/peers/internal/server"
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
	note := rwlock.WithTrace(&rwlock.Trace{Waiting: func(rwlock.TraceEvent) { g.waits <- struct{}{} }})
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

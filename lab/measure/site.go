package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

// site is the environment of the workloads: the servers, which are started when they are first needed.
type site struct {
	t       testing.TB
	binary  string        // of the servers
	window  time.Duration // how long a peer's turn takes
	servers []*testredis.Server
}

// on calls measure with several clients of a library over so many empty servers.
func (s *site) on(
	lib peer.Library, masters, clients int, ttl time.Duration,
	measure func(servers []*testredis.Server, all []peer.Peer) (Measures, error),
) (Measures, error) {
	for len(s.servers) < masters {
		s.servers = append(s.servers, testredis.StartBinary(s.t, s.binary))
	}
	servers := s.servers[:masters]
	if err := empty(servers...); err != nil {
		return nil, err
	}
	o := options(ttl)
	for _, one := range servers {
		o.Addrs = append(o.Addrs, one.Addr())
	}
	return use(lib, o, clients, func(all []peer.Peer) (Measures, error) { return measure(servers, all) })
}

// empty deletes every key, but not the scripts.
func empty(servers ...*testredis.Server) (err error) {
	for _, one := range servers {
		_, failed := one.Command("FLUSHALL", "SYNC")
		err = errors.Join(err, failed)
	}
	return err
}

func options(ttl time.Duration) peer.Options { return peer.Options{TTL: ttl, ClientName: "bench"} }

// use calls measure with several clients of a library, and closes them.
func use(
	lib peer.Library, o peer.Options, clients int, measure func(all []peer.Peer) (Measures, error),
) (_ Measures, err error) {
	var all []peer.Peer
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
	}()
	for range clients {
		p, err := lib.Open(o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", lib.Name, err)
		}
		all = append(all, p)
	}
	return measure(all)
}

// locking is a method that takes a lock, for writing or for reading.
type locking func(ctx context.Context, name string) (peer.Hold, error)

// pair is one acquisition and release, the unit of most workloads.
func pair(ctx context.Context, lock locking, name string) error {
	hold, err := lock(ctx, name)
	if err != nil {
		return err
	}
	return hold.Release(ctx)
}

// warmUp has each client make a pair, so that no script has to be loaded later.
func warmUp(ctx context.Context, all []peer.Peer) (err error) {
	for _, p := range all {
		err = errors.Join(err, pair(ctx, p.Lock, "warm-up"))
	}
	return err
}

// together calls do in n goroutines, and returns when all are over.
func together(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// cpu is the processor time of servers and of this process.
type cpu struct{ server, client time.Duration }

func readCPU(servers []*testredis.Server) cpu {
	c := cpu{client: server.ClientCPU()}
	for _, one := range servers {
		c.server += server.CPU(one)
	}
	return c
}

func (c cpu) since(before cpu) cpu { return cpu{c.server - before.server, c.client - before.client} }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

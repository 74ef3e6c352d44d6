package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

// site is the environment of the workloads: the servers, which are started when they are first needed.
type site struct {
	binary  string        // of the servers
	window  time.Duration // how long a peer's turn takes
	servers []*server.Server
}

// empty returns n servers without a key.
func (s *site) empty(ctx context.Context, n int) ([]*server.Server, error) {
	for len(s.servers) < n {
		one, err := server.Start(ctx, s.binary)
		if err != nil {
			return nil, err
		}
		s.servers = append(s.servers, one)
	}
	for _, one := range s.servers[:n] {
		if err := one.Flush(ctx); err != nil {
			return nil, err
		}
	}
	return s.servers[:n], nil
}

func (s *site) close() (err error) {
	for _, one := range s.servers {
		err = errors.Join(err, one.Close())
	}
	return err
}

// open opens a peer over the servers.
func open(lib peer.Library, servers []*server.Server, ttl time.Duration) (peer.Peer, error) {
	o := peer.Options{TTL: ttl, ClientName: "bench"}
	for _, one := range servers {
		o.Addrs = append(o.Addrs, one.Addr)
	}
	p, err := lib.Open(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", lib.Name, err)
	}
	return p, nil
}

// pair is one acquisition and release, the unit of most workloads.
func pair(ctx context.Context, p peer.Peer, name string) error {
	hold, err := p.Lock(ctx, name)
	if err != nil {
		return err
	}
	return hold.Release(ctx)
}

// cpu is the processor time of servers and of this process.
type cpu struct{ server, client time.Duration }

func readCPU(ctx context.Context, servers []*server.Server) (cpu, error) {
	c := cpu{client: server.ClientCPU()}
	for _, one := range servers {
		used, err := one.CPU(ctx)
		if err != nil {
			return c, err
		}
		c.server += used
	}
	return c, nil
}

func (c cpu) since(before cpu) cpu { return cpu{c.server - before.server, c.client - before.client} }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

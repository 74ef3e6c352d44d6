package main

import (
	"context"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

const (
	renewal = "renewal"
	// counted is the number of operations that each figure is the mean of.
	counted = 3200
	// pipelined is the number of goroutines that carry them out, so that requests and replies share reads and writes.
	pipelined = 64
	// queueing is the number of clients that want the same names, so that a waiter exists at each release.
	queueing = 4
	// leased is the number of locks that are held while renewals are counted.
	leased = 1280
)

// instructions measures the server's work for a lock, independent of the machine's other load. It is in neither group,
// because it needs one more program and its servers are slow.
func instructions() Workload {
	return Workload{
		Name: "instructions",
		About: "instructions of the server, by callgrind: to lock and release, to queue and be handed the lock, to renew; " +
			"needs valgrind",
		Columns: []Column{{Name: insideWrite}, {Name: insideRead}, {Name: insideHandOff}, {Name: renewal}},
		Points:  []int{0}, Once: true,
		Peers:   peer.Named(peer.FloorSet, peer.FloorLua, peer.FloorQueue, peer.FloorBatch, peer.Ours),
		Measure: measureInstructions,
	}
}

func measureInstructions(ctx context.Context, s *site, lib peer.Library, _ int) (Measures, error) {
	c := &counter{server: server.StartCounted(s.t, s.binary)}
	defer c.server.Kill()
	if err := c.idle(ctx); err != nil {
		return nil, err
	}
	o := options(peer.TTL)
	o.Addrs = []string{c.server.Addr()}
	return use(lib, o, queueing, func(all []peer.Peer) (m Measures, err error) {
		m = Measures{}
		if locks(lib) {
			m[insideWrite], err = c.pairs(ctx, all[0].Lock)
		}
		if reader, ok := all[0].(peer.Reader); ok && err == nil {
			m[insideRead], err = c.pairs(ctx, reader.RLock)
		}
		if lib.Queues && err == nil {
			m[insideHandOff], err = c.handOffs(ctx, all)
		}
		if p, ok := all[0].(renewing); ok && err == nil {
			m[renewal], err = c.renewals(ctx, p)
		}
		return m, err
	})
}

// counter counts the instructions of a server, less the ones that it runs without work as time passes.
type counter struct {
	server *server.Counted
	rate   float64 // a second, without work
}

func (c *counter) idle(ctx context.Context) (err error) {
	c.rate, err = c.count(func() (float64, error) {
		pause(ctx, 3*time.Second)
		return 3, ctx.Err()
	})
	return err
}

// count returns the instructions for each of the operations that do reports.
func (c *counter) count(do func() (float64, error)) (float64, error) {
	if _, err := c.server.Instructions(); err != nil { // discards the earlier ones
		return 0, err
	}
	began := time.Now()
	n, err := do()
	if err != nil {
		return 0, err
	}
	used, err := c.server.Instructions()
	return (float64(used) - c.rate*time.Since(began).Seconds()) / n, err
}

// pairs counts uncontended pairs. The first pairs are not counted: they load the scripts and create the keys.
func (c *counter) pairs(ctx context.Context, lock locking) (float64, error) {
	names := numbered(pipelined)
	if err := again(ctx, lock, names, 1); err != nil {
		return 0, err
	}
	return c.count(func() (float64, error) { return counted, again(ctx, lock, names, counted/pipelined) })
}

// handOffs counts with a goroutine of each client for each name. While one has it the others queue, so all but the
// first of each name are handed on.
func (c *counter) handOffs(ctx context.Context, all []peer.Peer) (float64, error) {
	names := numbered(pipelined / len(all))
	each := func(times int) error {
		return together(len(all), func(i int) error { return again(ctx, all[i].Lock, names, times) })
	}
	if err := each(2); err != nil {
		return 0, err
	}
	return c.count(func() (float64, error) { return counted, each(counted / pipelined) })
}

// again has a goroutine for each name take and release it the given number of times.
func again(ctx context.Context, lock locking, names []string, times int) error {
	return together(len(names), func(i int) error {
		for range times {
			if err := pair(ctx, lock, names[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// renewing is a peer that renews its holds by itself and counts the renewals.
type renewing interface {
	peer.Peer
	Renewals() uint64
}

func (c *counter) renewals(ctx context.Context, p renewing) (float64, error) {
	if err := newKeeper(p, leased).take(ctx); err != nil {
		return 0, err
	}
	pause(ctx, peer.TTL)
	return c.count(func() (float64, error) {
		before := p.Renewals()
		pause(ctx, peer.TTL)
		return float64(p.Renewals() - before), ctx.Err()
	})
}

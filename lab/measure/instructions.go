package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

const (
	renewal = "renewal"
	// ofOneMaster is the share of one master in a pair over several.
	ofOneMaster = "of 3 masters"
	// counted is the number of operations that each figure is the mean of.
	counted = 3200
	// pipelined is the number of goroutines that carry them out, so that requests and replies share reads and writes.
	pipelined = 64
	// queueing is the number of clients that want the same names, so that a waiter exists at each release.
	queueing = 4
	// seats is the number of masters of the quorum whose pairs are counted, and settled the time in which all of them,
	// not only a quorum, have answered the acquisitions: the release to one that has not costs a tombstone more.
	seats   = 3
	settled = 500 * time.Millisecond
	// leased is the number of locks that are held while renewals are counted.
	leased = 1280
)

// instructions measures the server's work for a lock, independent of the machine's other load. It is in neither group,
// because it needs one more program and its servers are slow.
func instructions() Workload {
	return Workload{
		Name: "instructions",
		About: "instructions of the server, by callgrind: to lock and release, alone and as one of 3 masters, to queue and " +
			"be handed the lock, to renew",
		Columns: []Column{
			{Name: insideWrite}, {Name: ofOneMaster}, {Name: insideRead}, {Name: insideHandOff}, {Name: renewal},
		},
		Points: []int{0}, Once: true,
		Peers:   peer.Named(peer.FloorSet, peer.FloorLua, peer.FloorQueue, peer.FloorBatch, peer.Ours),
		Measure: measureInstructions,
	}
}

func measureInstructions(ctx context.Context, s *site, lib peer.Library, _ int) (_ Measures, err error) {
	one, err := server.StartCounted(ctx, s.binary)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, one.Close()) }()
	c := &counter{server: one}
	if err := c.idle(ctx); err != nil {
		return nil, err
	}
	all, closeAll, err := openAll(lib, []*server.Server{one}, queueing)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	m := Measures{}
	if locks(lib) {
		if m[insideWrite], err = c.pairs(ctx, all[0].Lock); err != nil {
			return nil, err
		}
	}
	if reader, ok := all[0].(peer.Reader); ok {
		if m[insideRead], err = c.pairs(ctx, reader.RLock); err != nil {
			return nil, err
		}
	}
	if lib.Queues {
		if m[insideHandOff], err = c.handOffs(ctx, all); err != nil {
			return nil, err
		}
	}
	if p, ok := all[0].(renewing); ok {
		if m[renewal], err = c.renewals(ctx, p); err != nil {
			return nil, err
		}
	}
	if lib.Quorum {
		m[ofOneMaster], err = countMaster(ctx, s, lib)
	}
	return m, err
}

// countMaster returns the mean instructions of a master for its part of a pair over several.
func countMaster(ctx context.Context, s *site, lib peer.Library) (mean float64, err error) {
	var servers []*server.Server
	counters := make([]*counter, seats)
	for i := range counters {
		one, err := server.StartCounted(ctx, s.binary)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, one.Close()) }()
		servers, counters[i] = append(servers, one), &counter{server: one}
	}
	p, err := open(lib, servers, peer.TTL)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	const times = 10
	if err := inStep(ctx, p, 1); err != nil { // loads the scripts and creates the keys
		return 0, err
	}
	for _, c := range counters { // with the client, which looks after its masters
		if err := c.idle(ctx); err != nil {
			return 0, err
		}
	}
	for _, c := range counters {
		if err := c.begin(ctx); err != nil {
			return 0, err
		}
	}
	if err := inStep(ctx, p, times); err != nil {
		return 0, err
	}
	for _, c := range counters {
		used, err := c.end(ctx)
		if err != nil {
			return 0, err
		}
		mean += used / (seats * times * pipelined)
	}
	return mean, nil
}

// inStep has goroutines take a name each, and release it once all masters have had the time to answer.
func inStep(ctx context.Context, p peer.Peer, times int) error {
	names, holds := numbered(pipelined), make([]peer.Hold, pipelined)
	each := func(do func(i int) error) error {
		errs := make([]error, pipelined)
		var all sync.WaitGroup
		for i := range names {
			all.Go(func() { errs[i] = do(i) })
		}
		all.Wait()
		pause(ctx, settled)
		return errors.Join(errs...)
	}
	for range times {
		err := each(func(i int) (err error) {
			holds[i], err = p.Lock(ctx, names[i])
			return err
		})
		if err == nil {
			err = each(func(i int) error { return holds[i].Release(ctx) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// counter counts the instructions of a server, less the ones that it runs without work as time passes.
type counter struct {
	server *server.Server
	rate   float64 // a second, without work
	began  time.Time
}

func (c *counter) idle(ctx context.Context) (err error) {
	c.rate, err = c.count(ctx, func() (float64, error) {
		pause(ctx, 3*time.Second)
		return 3, ctx.Err()
	})
	return err
}

// count returns the instructions for each of the operations that do reports.
func (c *counter) count(ctx context.Context, do func() (float64, error)) (float64, error) {
	if err := c.begin(ctx); err != nil {
		return 0, err
	}
	n, err := do()
	if err != nil {
		return 0, err
	}
	used, err := c.end(ctx)
	return used / n, err
}

// begin discards the earlier instructions.
func (c *counter) begin(ctx context.Context) error {
	_, err := c.server.Instructions(ctx)
	c.began = time.Now()
	return err
}

// end returns the instructions since begin.
func (c *counter) end(ctx context.Context) (float64, error) {
	used, err := c.server.Instructions(ctx)
	return float64(used) - c.rate*time.Since(c.began).Seconds(), err
}

// pairs counts uncontended pairs. The first pairs are not counted: they load the scripts and create the keys.
func (c *counter) pairs(
	ctx context.Context, lock func(context.Context, string) (peer.Hold, error),
) (float64, error) {
	names := numbered(pipelined)
	if err := again(ctx, lock, names, 1); err != nil {
		return 0, err
	}
	return c.count(ctx, func() (float64, error) { return counted, again(ctx, lock, names, counted/pipelined) })
}

// handOffs counts with a goroutine of each client for each name. While one has it the others queue, so all but the
// first of each name are handed on.
func (c *counter) handOffs(ctx context.Context, all []peer.Peer) (float64, error) {
	names := numbered(pipelined / len(all))
	each := func(times int) error {
		errs := make([]error, len(all))
		var together sync.WaitGroup
		for i, p := range all {
			together.Go(func() { errs[i] = again(ctx, p.Lock, names, times) })
		}
		together.Wait()
		return errors.Join(errs...)
	}
	if err := each(2); err != nil {
		return 0, err
	}
	return c.count(ctx, func() (float64, error) { return counted, each(counted / pipelined) })
}

// again has a goroutine for each name take and release it the given number of times.
func again(
	ctx context.Context, lock func(context.Context, string) (peer.Hold, error), names []string, times int,
) error {
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			for range times {
				hold, err := lock(ctx, name)
				if err == nil {
					err = hold.Release(ctx)
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// renewing is a peer that renews its holds by itself and counts the renewals.
type renewing interface {
	peer.Peer
	Renewals() uint64
}

func (c *counter) renewals(ctx context.Context, p renewing) (float64, error) {
	k := &keeper{peer: p, names: numbered(leased), holds: make([]peer.Hold, leased)}
	if err := k.take(ctx); err != nil {
		return 0, err
	}
	pause(ctx, peer.TTL)
	return c.count(ctx, func() (float64, error) {
		before := p.Renewals()
		pause(ctx, peer.TTL)
		return float64(p.Renewals() - before), ctx.Err()
	})
}

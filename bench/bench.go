package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

const workersPerClient = 2 // so that the goroutines of a process contend among themselves too

// bench is a run: its clients, the data that they share, and what watches them.
type bench struct {
	cfg      config
	embedded []*miniredis.Miniredis
	team     []*client // the last one is the holder that stalls
	names    []string
	store    *store
	judge    *judge.Judge
	*result
}

// startLimit is enough for masters that abstain for the longest TTL: restarted ones, and late ones on a busy machine.
const startLimit = 10 * ttl

func prepare(ctx context.Context, cfg config) (_ *bench, err error) {
	b := &bench{cfg: cfg}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	addrs, servers := cfg.addrs, strings.Join(cfg.addrs, ", ")
	if len(addrs) == 0 {
		servers = plural(uint64(cfg.masters), "embedded server") + ", which are slow"
	}
	for len(addrs) < cfg.masters {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true) // else no key ever expires by itself
		if err := server.Start(); err != nil {
			return nil, fmt.Errorf("embedded server: %w", err)
		}
		b.embedded, addrs = append(b.embedded, server), append(addrs, server.Addr())
	}
	for id := 1; id <= cfg.clients+1; id++ {
		c, err := newClient(id, addrs)
		if err != nil {
			return nil, err
		}
		b.team = append(b.team, c)
	}
	if err = b.team[0].probe(ctx, startLimit); err != nil {
		return nil, err
	}
	for i := range cfg.names {
		b.names = append(b.names, fmt.Sprintf("account/%d", i+1))
	}
	b.store = newStore(b.names)
	b.result = newResult(fmt.Sprintf("A demonstration of faults, no measurement: %s of %d workers share %s on %s.",
		plural(uint64(cfg.clients), "client"), workersPerClient, plural(uint64(cfg.names), "lock"), servers))
	b.judge = judge.New(func(v judge.Violation) { b.violated(v.Rule, "%s", v.Text) })
	return b, nil
}

// close takes as long as the slowest client, which waits a while for unreachable masters.
func (b *bench) close() {
	var all sync.WaitGroup
	for _, c := range b.team {
		all.Go(c.close)
	}
	all.Wait()
	for _, server := range b.embedded {
		server.Close()
	}
}

// grace bounds the wait for the first section of each worker and the first late write after the working time. It is for
// a run that cannot get there at all, not a measure of the machine's speed: on an idle machine they take a second.
const grace = time.Minute

// work runs the clients for the configured time, and returns when all of them are done.
func (b *bench) work(ctx context.Context, progressTo io.Writer) {
	began := time.Now()
	playing, stop := context.WithDeadline(ctx, began.Add(b.cfg.length+grace))
	defer stop()
	working, stopWorking := context.WithDeadline(playing, began.Add(b.cfg.length))
	defer stopWorking()
	var watching, clients sync.WaitGroup
	over := make(chan struct{})
	watching.Go(func() { b.progress(progressTo, over) })
	watching.Go(func() { b.probeAfter(ctx, working, stop) })
	holder, others := b.team[len(b.team)-1], b.team[:len(b.team)-1]
	workers := workersPerClient * len(others)
	for i := range workers {
		clients.Go(func() { b.sections(playing, working, others[i/workersPerClient], beat(b.names, i, workers)) })
	}
	s := &staller{bench: b, holder: holder, next: others[0]}
	clients.Go(func() { s.play(playing, working) })
	clients.Wait()
	close(over)
	watching.Wait()
	b.lasted, b.interrupted = time.Since(began), ctx.Err() != nil
	unfenced, fenced := b.store.lost()
	for _, lost := range fenced {
		b.violated(storage, "update lost: %s", lost)
	}
	b.lostUnfenced = unfenced
	for _, c := range b.team {
		s := c.locker.Stats()
		b.handedOff, b.result.lost = b.handedOff+s.HandedOff, b.result.lost+s.Lost.Total()+s.Expired
	}
}

// probeLimit is longer than a busy server needs for one lock: one that is silent for a TTL has ended every lease.
const probeLimit = 5 * ttl

// probeAfter checks after the working time whether the servers still grant locks. The workers cannot detect it: for a
// waiter, an unreachable server looks like a lock that is held.
func (b *bench) probeAfter(ctx, working context.Context, gone context.CancelFunc) {
	<-working.Done()
	if err := b.team[0].probe(ctx, probeLimit); err != nil && ctx.Err() == nil {
		b.gone = err
		gone()
	}
}

// progress reports the state of the run every second.
func (b *bench) progress(out io.Writer, over <-chan struct{}) {
	tick := time.Tick(time.Second)
	for began := time.Now(); ; {
		select {
		case <-tick:
		case <-over:
			return
		}
		var acquired, waiting int
		for _, c := range b.team {
			s := c.locker.Stats()
			acquired, waiting = acquired+int(s.Acquired), waiting+int(s.Waiting)
		}
		fmt.Fprintf(out, "%.0fs of %v: %d locks taken, %d waiting\n",
			time.Since(began).Seconds(), b.cfg.length, acquired, waiting)
	}
}

// beat distributes the names among the workers. If each worker took any name, all would soon wait behind the stalled
// name, and the run would show nothing else.
func beat(names []string, worker, workers int) []string {
	all := names[worker%len(names):][:1:1]
	for i := worker + workers; i < len(names); i += workers {
		all = append(all, names[i])
	}
	return all
}

const afterFailure = 50 * time.Millisecond // limits the load on a server in trouble

// sections takes locks until working ends, but runs at least one section even in a short run, which playing bounds. A
// section that has begun is finished.
func (b *bench) sections(playing, working context.Context, c *client, names []string) {
	for ctx := playing; ctx.Err() == nil; {
		name := names[rand.IntN(len(names))]
		var err error
		switch share := rand.IntN(100); {
		case share < 55:
			err = b.section(ctx, c, name, "read", c.locker.RLock)
		case share < 85:
			err = b.section(ctx, c, name, "write", c.locker.Lock)
		default:
			err = b.nestedSections(reentrant.WithOwner(ctx), c, name)
		}
		switch {
		case err == nil:
			ctx = working
		case ctx.Err() == nil:
			b.failed(err)
			pause(ctx, afterFailure)
		}
	}
}

func (b *bench) section(
	ctx context.Context, c *client, name, kind string,
	take func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error),
) error {
	at := b.judge.Begin(name)
	lease, err := take(ctx, name)
	if err != nil {
		return err
	}
	b.took(kind)
	b.occupy(at, lease, func() { b.use(context.WithoutCancel(ctx), lease) })
	return notLost(lease.Release(ctx))
}

// nestedSections is a function that locks, calling functions that lock the same name. Theirs must be the same hold: the
// same token, deeper by one.
func (b *bench) nestedSections(ctx context.Context, c *client, name string) error {
	at := b.judge.Begin(name)
	outer, err := c.nested.Lock(ctx, name)
	if err != nil {
		return err
	}
	b.took("write")
	b.occupy(at, outer.Lease(), func() {
		ctx := context.WithoutCancel(ctx)
		for _, do := range []func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error{
			c.nested.Do, c.nested.RDo,
		} {
			err = errors.Join(err, do(ctx, name, func(ctx context.Context) error {
				b.took("nested")
				if f, _ := fencing.FromContext(ctx, name); f.Token != outer.Token() {
					b.violated(judge.Order, "a nested section has token %v, the one around it %v", f.Token, outer.Token())
				}
				return nil
			}))
		}
		b.use(ctx, outer.Lease())
	})
	return errors.Join(notLost(err), notLost(outer.Release(ctx)))
}

// occupy runs work as the critical section of a lease, watched from entering to leaving.
func (b *bench) occupy(at judge.Attempt, lease *rwlock.Lease, work func()) {
	section := &judge.Section{Grant: lease}
	b.judge.Acquired(at, section)
	work()
	section.Leave()
}

// use reads the counter or adds one to it. A section takes a while, so that the other workers come to wait.
func (b *bench) use(ctx context.Context, lease *rwlock.Lease) {
	ctx = lease.Context(ctx)
	read, err := b.store.load(ctx, lease.Fence())
	if b.accessed(lease, err); err != nil {
		return
	}
	pause(ctx, time.Millisecond+rand.N(4*time.Millisecond))
	if lease.Mode() == rwlock.Write {
		err = b.store.increment(ctx, lease.Fence(), read)
	} else {
		_, err = b.store.load(ctx, lease.Fence())
	}
	b.accessed(lease, err)
}

// accessed judges the storage's answer. If the access is refused and the lease, asked after the refusal, is still held,
// then a newer access intervened during the hold, which is a violation.
func (b *bench) accessed(lease *rwlock.Lease, err error) {
	switch held := lease.Err() == nil; {
	case errors.Is(err, fencing.ErrStale):
		b.note(func() { b.refused++ })
		if held {
			b.violated(storage, "a holder that is trusted was refused: %v", err)
		}
	case err != nil && held:
		b.failed(err)
	}
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

// notLost leaves out losses: the locker counts them, and the guard refuses what they would do.
func notLost(err error) error {
	if errors.Is(err, rwlock.ErrLost) {
		return nil
	}
	return err
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

const (
	// ttl is of every lease except the stalled ones: a busy machine must not make the clients lose leases by accident.
	ttl              = 2 * time.Second
	probeLimit       = 5 * ttl               // restarted servers abstain for the longest TTL
	grace            = time.Minute           // for the first late write after the working time
	afterFailure     = 50 * time.Millisecond // limits the load on a server in trouble
	workersPerClient = 2                     // the goroutines of a process contend among themselves too
)

// bench is a run: its clients, the data that they share, and what watches them.
type bench struct {
	cfg      config
	head     string // what runs
	embedded []*miniredis.Miniredis
	team     []*rwlock.Locker // each like one of a separate process; the last one is of the holder that stalls
	names    []string
	store    *store
	judge    *judge.Judge
	result
}

// prepare opens the clients, and returns once the servers grant locks.
func (b *bench) prepare(ctx context.Context, stderr io.Writer) (err error) {
	cfg := b.cfg
	options := []rwlock.Option{
		rwlock.WithPrefix("fencelock-bench"), rwlock.WithTTL(ttl), rwlock.WithReleaseTimeout(time.Second),
		rwlock.WithLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	}
	addrs, servers := cfg.addrs, strings.Join(cfg.addrs, ", ")
	if len(addrs) == 0 {
		servers = plural(cfg.masters, "embedded server") + ", which are slow"
	}
	for len(addrs) < cfg.masters {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true) // else no key ever expires by itself
		if err := server.Start(); err != nil {
			return fmt.Errorf("embedded server: %w", err)
		}
		b.embedded, addrs = append(b.embedded, server), append(addrs, server.Addr())
	}
	if len(b.embedded) > 1 { // they are new: the first lock need not wait for what they may have granted before
		if err = redlock.Found(ctx, addrs, options...); err != nil {
			return err
		}
	}
	for id := range cfg.clients + 1 {
		c, err := open(addrs, append(options, rwlock.WithMeta(fmt.Sprint("client ", id)))...)
		if err != nil {
			return err
		}
		b.team = append(b.team, c)
		options = append(options, rwlock.WithLogger(slog.New(slog.DiscardHandler))) // the warnings of one are enough
	}
	for i := range cfg.names {
		b.names = append(b.names, fmt.Sprintf("account/%d", i+1))
	}
	b.store = &store{counts: map[string][2]counter{}}
	b.judge = judge.New(func(v judge.Violation) { b.violated(v.Rule, "%s", v.Text) })
	b.head = fmt.Sprintf("A demonstration of faults, no measurement: %s of %d workers share %s on %s.",
		plural(cfg.clients, "client"), workersPerClient, plural(cfg.names, "lock"), servers)
	return b.probe(ctx)
}

// run plays the whole run, and writes what it has shown. The error says why it has proved nothing.
func (b *bench) run(ctx context.Context, stdout, stderr io.Writer) error {
	_, said := fmt.Fprintln(stdout, b.head)
	b.work(ctx, stderr)
	unfenced, fenced := b.store.lost()
	for _, lost := range fenced {
		b.violated(storage, "update lost: %s", lost)
	}
	for _, c := range b.team {
		b.n[handOffs].Add(c.Stats().HandedOff)
	}
	_, err := io.WriteString(stdout, b.table(unfenced))
	return errors.Join(b.verdict(), said, err)
}

func open(addrs []string, options ...rwlock.Option) (*rwlock.Locker, error) {
	if len(addrs) == 1 {
		return rwlock.Open(addrs[0], options...)
	}
	// On a busy machine all masters answer late, and none is down.
	return redlock.Open(addrs, append(options, redlock.WithNodeTimeout(ttl/2))...)
}

func (b *bench) close() {
	var all sync.WaitGroup
	for _, c := range b.team {
		all.Go(func() { _ = c.Close() })
	}
	all.Wait()
	for _, server := range b.embedded {
		server.Close()
	}
}

// probe takes a lock that no other client takes, to detect faults of the servers.
func (b *bench) probe(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	lease, err := b.team[0].Lock(bounded, "probe")
	if err != nil {
		return cmp.Or(b.team[0].Ping(ctx), err) // which names the trouble and the cure
	}
	_ = lease.Release(bounded) // if it comes too late, the lease ends by itself
	return nil
}

// work runs the clients, and returns when all of them are done.
func (b *bench) work(ctx context.Context, progress io.Writer) {
	began := time.Now()
	working, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		defer stop()
		b.watch(working, progress)
	})
	holder, others := b.team[len(b.team)-1], b.team[:len(b.team)-1]
	for i := range workersPerClient * len(others) {
		// A worker keeps to one name. If each took any, all would soon wait behind the stalled holder.
		all.Go(func() { b.sections(working, reentrant.New(others[i/workersPerClient]), b.names[i%len(b.names)]) })
	}
	all.Go(func() { (&staller{b, holder, others[0]}).play(working) })
	all.Wait()
	b.lasted, b.interrupted = time.Since(began), ctx.Err() != nil
}

// watch reports the state of the run every second. It returns when the time is over, and a late write was tried: first
// it asks the servers for a lock, since to the workers a server that is gone looks like a lock that is held.
func (b *bench) watch(ctx context.Context, out io.Writer) {
	for i := 1; ; i++ {
		if pause(ctx, time.Second); ctx.Err() != nil {
			return
		}
		passed := time.Duration(i) * time.Second
		fmt.Fprintf(out, "%v of %v: %d writes, %d reads\n", passed, b.cfg.length, b.n[writes].Load(), b.n[reads].Load())
		if passed >= b.cfg.length && (b.n[late].Load() > 0 || passed > b.cfg.length+grace) {
			if err := b.probe(ctx); ctx.Err() == nil {
				b.gone = err
			}
			return
		}
	}
}

// sections takes a lock again and again until ctx ends. A section that has begun is finished.
func (b *bench) sections(ctx context.Context, c *reentrant.Locker, name string) {
	for ctx.Err() == nil {
		take, kind := c.Lock, writes
		if rand.IntN(2) == 0 {
			take, kind = c.RLock, reads
		}
		if err := b.section(reentrant.WithOwner(ctx), c, name, kind, take); err != nil && ctx.Err() == nil {
			b.failed(err)
			pause(ctx, afterFailure)
		}
	}
}

// section is a function that locks, and calls a function that locks the same name. That one must be in the same hold:
// it has the same token.
func (b *bench) section(
	ctx context.Context, c *reentrant.Locker, name string, kind count,
	take func(context.Context, string, ...rwlock.LockOption) (*reentrant.Hold, error),
) error {
	at := b.judge.Begin(name)
	hold, err := take(ctx, name)
	if err != nil {
		return err
	}
	b.n[kind].Add(1)
	b.occupy(at, hold.Lease(), func() {
		ctx := context.WithoutCancel(ctx)
		err = c.RDo(ctx, name, func(ctx context.Context) error {
			b.n[nested].Add(1)
			if f, _ := fencing.FromContext(ctx, name); f.Token != hold.Token() {
				b.violated(judge.Order, "a nested section has token %v, the one around it %v", f.Token, hold.Token())
			}
			return nil
		})
		b.use(ctx, hold.Lease())
	})
	return errors.Join(notLost(err), notLost(hold.Release(ctx)))
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
	pause(ctx, time.Millisecond+rand.N(4*time.Millisecond))
	if err == nil && lease.Mode() == rwlock.Write {
		err = b.store.increment(ctx, lease.Fence(), read)
	}
	b.accessed(lease, err)
}

// accessed judges the storage's answer. If the access is refused and the lease, asked after the refusal, is still held,
// then a newer access intervened during the hold, which is a violation.
func (b *bench) accessed(lease *rwlock.Lease, err error) {
	switch held := lease.Err() == nil; {
	case errors.Is(err, fencing.ErrStale):
		b.n[refused].Add(1)
		if held {
			b.violated(storage, "a holder that is trusted was refused: %v", err)
		}
	case err != nil && held:
		b.failed(err)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
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

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sys/unix"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// workerConfig is the configuration of a worker process.
type workerConfig struct {
	Process  int
	Slot     int
	Masters  []endpoint
	Replicas int               // that each grant needs
	Links    map[string]string // where to dial instead of the address of a server
	Tuned    bool              // clients of Dial
	Sends    bool              // its releases are not waited for
	Confirms bool              // a hand-off counts once a renewal is answered
	TTL      time.Duration
	Longest  time.Duration // of any worker
	Workers  int
	Names    int
	Long     int      // one section of so many outlasts its TTL perhaps
	Forms    []string // from which those of the sections are drawn
	Seed     uint64
	Out      string   // the file of its events
	Tickets  string   // the folder of the tickets of detached leases
	Socket   string   // where it serves other workers' owners
	Partners []string // the sockets of the other workers
	Register string   // the socket of the registers
	Library  string   // the lock library that is compared, or "" for every form of this one
}

// now reads the clock that all processes of a machine share.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// worker is one process that uses locks.
type worker struct {
	cfg     workerConfig
	mu      sync.Mutex
	out     *bufio.Writer
	healed  atomic.Bool // by SIGUSR1: all faults have ended
	stopped atomic.Bool // by SIGTERM
	pauser  *pauser
}

func (w *worker) record(e history.Event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.out.Write(append(line, '\n'))
	_ = w.out.Flush()
}

// longestEnd is how long a worker may take from the end of all faults to its own. It prints its goroutines then.
const longestEnd = 90 * time.Second

// runWorker works until all faults have ended, then takes every lock once more and ends.
func runWorker(cfg workerConfig) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTERM)
	// The arena sends no signal before this file exists.
	file, err := os.OpenFile(cfg.Out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	w := &worker{cfg: cfg, out: bufio.NewWriter(file), pauser: newPauser(cfg.Forms)}
	ctx, over := context.WithCancel(context.Background())
	go func() {
		for s := range signals {
			over()
			if s == syscall.SIGUSR1 {
				w.healed.Store(true)
				time.AfterFunc(longestEnd, func() { panic(fmt.Sprintf("process %d does not end", cfg.Process)) })
			} else {
				w.stopped.Store(true)
			}
		}
	}()
	go watchStill(context.Background(), cfg.Process, func(f history.Fault) { w.record(history.Event{Fault: &f}) })
	if cfg.Library != "" {
		return w.addToChains(ctx)
	}

	shared := w.open()
	if shared == nil {
		return nil
	}
	listener, err := net.Listen("unix", cfg.Socket)
	if err != nil {
		return err
	}
	nested := reentrant.New(shared.locker)
	go w.serve(listener, nested)

	var all sync.WaitGroup
	for i := range cfg.Workers {
		all.Go(func() { w.use(shared, i) })
	}
	all.Go(func() { w.probe(shared, 10_000) })
	for master, c := range shared.clients {
		go w.watchAnswers(master, c)
	}
	all.Wait()
	_ = listener.Close()
	began := now()
	shared.close()
	if d := time.Duration(now() - began); d > 20*time.Second {
		return fmt.Errorf("process %d: Close took %v", cfg.Process, d)
	}
	return nil
}

// use takes locks until all faults have ended, then every lock once more. The first of the process' goroutines has a
// locker of its own, which it closes at any moment.
func (w *worker) use(shared *opened, id int) {
	registers, err := openRegisters(w.cfg.Register)
	if err != nil {
		panic(err)
	}
	c := &client{
		w: w, id: id, registers: registers, shares: id > 0,
		rng: rand.New(rand.NewPCG(w.cfg.Seed, uint64(w.cfg.Process*1000+id))),
	}
	at, own := shared, id == 0
	if own {
		at = w.open(w.variant()...)
	}
	for c.takes(at) && !w.healed.Load() && !w.stopped.Load() {
		if own && c.rng.IntN(8) == 0 {
			c.closeBeneath(at)
			at = w.open(w.variant()...)
		} else {
			c.step()
		}
	}
	if own && at != nil {
		at.close()
		at = w.open() // without options that bound its waiting
	}
	if c.takes(at) {
		c.takeAll()
	}
	if own && at != nil {
		at.close()
	}
}

// takes makes the client use the locker, unless there is none because the worker is stopped.
func (c *client) takes(at *opened) bool {
	if at == nil {
		return false
	}
	if c.locker != at.locker {
		c.locker, c.nested = at.locker, reentrant.New(at.locker)
	}
	return true
}

// stillness is how long a process must stand still for the history to say so.
const stillness = 60 * time.Millisecond

// watchStill records when this process stood still, until ctx ends. 0 is the process of the arena.
func watchStill(ctx context.Context, process int, record func(history.Fault)) {
	last := now()
	for ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		at := now()
		if at-last > int64(stillness) {
			record(history.Fault{
				Kind: history.Still, Target: fmt.Sprint("process ", process), From: last, Until: at, Process: process,
			})
		}
		last = at
	}
}

// watchAnswers records when a master answered this process late, until the client is closed. A busy server answers each
// connection in turn, so a call behind a queue on its connection waits for many turns.
func (w *worker) watchAnswers(master int, c rueidis.Client) {
	for {
		asked := now()
		err := c.Do(context.Background(), c.B().Ping().Build()).Error()
		if at := now(); err == nil && at-asked > int64(stillness) && at-asked < int64(2*time.Second) {
			w.record(history.Event{Slow: &history.Fault{
				Kind: "slow-answers", Target: fmt.Sprint("process ", w.cfg.Process), From: asked, Until: at,
				Workers: []int{w.cfg.Slot}, Masters: []int{master},
			}})
		} else if errors.Is(err, rueidis.ErrClosing) {
			return
		}
		time.Sleep(watchInterval)
	}
}

// opened is a locker with its clients.
type opened struct {
	locker  *rwlock.Locker
	clients []rueidis.Client
}

func (o *opened) close() {
	_ = o.locker.Close()
	for _, c := range o.clients {
		c.Close()
	}
}

// open makes a locker, and tries again where the servers do not answer. It returns nil if the worker is stopped.
func (w *worker) open(options ...rwlock.Option) *opened {
	for !w.stopped.Load() {
		o, err := w.tryToOpen(options...)
		if err == nil {
			return o
		}
		if errors.Is(err, rwlock.ErrOption) {
			panic(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func (w *worker) tryToOpen(options ...rwlock.Option) (o *opened, err error) {
	o = &opened{}
	defer func() {
		if err != nil {
			for _, c := range o.clients {
				c.Close()
			}
		}
	}()
	silent := rwlock.WithLogger(slog.New(slog.DiscardHandler)) // the judge reads the history
	options = append([]rwlock.Option{rwlock.WithTTL(w.cfg.TTL), silent}, options...)
	if w.cfg.Sends {
		options = append(options, rwlock.WithBackgroundRelease())
	}
	if w.cfg.Confirms {
		options = append(options, rwlock.WithConfirmedHandOff())
	}
	if w.cfg.Replicas > 0 {
		options = append(options, rwlock.WithReplicas(w.cfg.Replicas, w.cfg.TTL/8))
	}
	for _, master := range w.cfg.Masters {
		c, err := w.dial(master)
		if c == nil {
			return o, err
		}
		o.clients = append(o.clients, c)
	}
	if len(o.clients) == 1 {
		o.locker, err = rwlock.New(o.clients[0], options...)
	} else {
		o.locker, err = redlock.New(o.clients, append(options, redlock.WithQuarantine(w.cfg.Longest))...)
	}
	return o, err
}

// dial may return a client together with an error, if the server does not answer so far.
func (w *worker) dial(master endpoint) (rueidis.Client, error) {
	option := rueidis.ClientOption{DialCtxFn: w.connect}
	single := master.Set == "" && !master.Cluster
	if w.cfg.Tuned && single {
		return rwlock.Dial(master.Addrs[0], option)
	}
	option.InitAddress, option.Sentinel.MasterSet = master.Addrs, master.Set
	if w.cfg.Tuned {
		return rwlock.Dial("", option)
	}
	option.ForceSingleClient = single
	option.Sentinel.TopologyRefreshInterval = time.Second // docs/deployments.md asks for it
	option.DisableCache, option.Dialer.Timeout, option.ConnWriteTimeout = true, time.Second, 2*time.Second
	return rueidis.NewClient(option)
}

// variant draws options that differ from those of the process' other lockers.
func (w *worker) variant() []rwlock.Option {
	return [][]rwlock.Option{
		nil,
		{rwlock.WithTTL(w.cfg.TTL / 2), rwlock.WithReleaseTimeout(w.cfg.TTL / 2)}, // what Close leaves expires with it
		{rwlock.WithMaxWait(w.cfg.TTL), rwlock.WithMeta("another locker")},
		{rwlock.WithLinger(w.cfg.TTL / 8)},
	}[rand.IntN(4)]
}

// connect opens a connection over the link to the server at that address.
func (w *worker) connect(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	link, ok := w.cfg.Links[addr]
	if !ok {
		link = addr
	}
	conn, err := d.DialContext(ctx, "tcp", link)
	if err != nil {
		return nil, err
	}
	return testredis.FarEnd(conn, addr), nil
}

// closeBeneath closes the locker while several goroutines use it.
func (c *client) closeBeneath(at *opened) {
	var all sync.WaitGroup
	for i := range 3 {
		other := *c
		other.id, other.rng, other.registers = c.id+100*(i+1), rand.New(rand.NewPCG(c.rng.Uint64(), 2)), nil
		all.Go(func() {
			for range 3 {
				other.step()
			}
		})
	}
	all.Go(func() {
		time.Sleep(rand.N(c.w.cfg.TTL))
		at.close()
	})
	for range 3 {
		c.step()
	}
	all.Wait()
}

// joinRequest makes another process take a lock for an owner.
type joinRequest struct {
	Name  string
	Write bool
	Fence map[string][]string // as fencing.Inject writes it
}

// joinReply returns the token of the hold.
type joinReply struct {
	Token uint64
	Err   string
}

// serve takes locks for the owners of other processes.
func (w *worker) serve(listener net.Listener, nested *reentrant.Locker) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			var request joinRequest
			if json.NewDecoder(conn).Decode(&request) != nil {
				return
			}
			_ = json.NewEncoder(conn).Encode(w.join(context.Background(), nested, request))
		}()
	}
}

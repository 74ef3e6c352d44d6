package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// arena is the servers, the links to them and the worker processes of a run.
type arena struct {
	*deployment
	t       testing.TB
	cfg     config
	dir     string
	names   int
	ttl     time.Duration // of the first worker
	longest time.Duration
	links   [][]*link // of each worker, to each node and sentinel
	workers []*process

	listener  net.Listener
	registers *registers
	observed  observed

	mu   sync.Mutex
	next int // id of the next process
	errs []error
	outs []string
}

// link is the way from one worker to one server.
type link struct {
	*testredis.Proxy
	master int // that the server belongs to
}

// process is one worker, which may be replaced by another process in its place.
type process struct {
	slot   int
	socket string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan error
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(s)
}

// ttls are the TTLs of the workers' leases.
var ttls = []time.Duration{time.Second, 700 * time.Millisecond, 2 * time.Second, 1500 * time.Millisecond}

// ttlOf returns the TTL of the leases of the worker in that slot.
func (c config) ttlOf(slot int) time.Duration {
	if c.library != "" {
		return peerTTL
	}
	return ttls[slot%len(ttls)]
}

func newArena(t testing.TB, cfg config) *arena {
	a := &arena{
		deployment: newDeployment(t, cfg), t: t, cfg: cfg, dir: t.TempDir(), names: cfg.names, ttl: cfg.ttlOf(0),
	}
	for i := range cfg.processes {
		a.longest = max(a.longest, cfg.ttlOf(i))
	}
	err := os.Mkdir(filepath.Join(a.dir, "tickets"), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if a.listener, err = net.Listen("unix", filepath.Join(a.dir, "registers")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.listener.Close() })
	a.registers = serveRegisters(a.listener)
	for i := range cfg.processes {
		var links []*link
		for _, n := range slices.Concat(a.nodes, a.sentinels) {
			links = append(links, &link{testredis.NewProxy(t, n.Addr()), n.master})
		}
		a.links = append(a.links, links)
		a.workers = append(a.workers, &process{slot: i, socket: filepath.Join(a.dir, fmt.Sprint("worker", i))})
	}
	a.watch(t)
	return a
}

// watch records failovers, and when the arena's own process stood still, until the end of the run.
func (a *arena) watch(t testing.TB) {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range a.groups {
		template := history.Fault{Target: fmt.Sprint("master ", i), Masters: []int{i}, Forgets: true}
		template.Excuses = a.cfg.masters == 1 && a.cfg.replicas < a.promotable()
		template.Reorders = a.cfg.masters == 1
		of := slices.DeleteFunc(slices.Clone(a.nodes), func(n *node) bool { return n.master != i })
		all.Go(func() { a.observed.failovers(ctx, a.observed.watch(ctx, of), 1, template) })
	}
	if a.cluster != nil {
		template := history.Fault{
			Target: "the cluster", Forgets: true, Excuses: a.cfg.replicas < a.promotable(), Reorders: true,
		}
		all.Go(func() { a.observed.failovers(ctx, a.observed.watch(ctx, a.nodes), len(a.nodes)/2, template) })
	}
	if a.promotable() == 0 {
		a.observed.watch(ctx, a.nodes)
	}
	for _, s := range a.embeddedServers() {
		all.Go(func() { s.watchScripts(ctx, a.observed.add) })
	}
	all.Go(func() { watchStill(ctx, 0, a.observed.add) })
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
}

// start starts a worker in the slot of p. The caller holds p.mu, or p is not shared so far.
func (a *arena) start(p *process) error {
	a.mu.Lock()
	a.next++
	id := a.next
	out := filepath.Join(a.dir, fmt.Sprint("events", id))
	a.outs = append(a.outs, out)
	a.mu.Unlock()
	cfg := workerConfig{
		Process: id, Slot: p.slot, Tuned: p.slot%2 == 0, Sends: id/2%2 == 1, TTL: a.cfg.ttlOf(p.slot),
		Confirms: id%3 == 1, Longest: a.longest, Library: a.cfg.library,
		Workers: a.cfg.workers, Names: a.cfg.names, Long: a.cfg.long, Forms: a.cfg.forms, Seed: a.cfg.seed,
		Out: out, Socket: p.socket, Tickets: filepath.Join(a.dir, "tickets"),
		Masters: a.masters, Replicas: a.cfg.replicas, Register: a.listener.Addr().String(), Links: map[string]string{},
	}
	for i, n := range slices.Concat(a.nodes, a.sentinels) {
		cfg.Links[n.Addr()] = a.links[p.slot][i].Addr()
	}
	for _, other := range a.workers {
		if other != p {
			cfg.Partners = append(cfg.Partners, other.socket)
		}
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	_ = os.Remove(p.socket)
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	p.ended = ended
	go func(cmd *exec.Cmd) { ended <- cmd.Wait() }(p.cmd)
	return awaitFile(out)
}

// awaitFile returns when a worker listens to signals: it makes its file then.
func awaitFile(path string) error {
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
	}
	return fmt.Errorf("a worker has not begun: no %s", path)
}

// replace kills the worker and starts another one in its place.
func (a *arena) replace(p *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Kill()
	<-p.ended
	if err := a.start(p); err != nil {
		a.failed(err)
	}
}

// restart ends all workers, calls f, and starts other workers in their places.
func (a *arena) restart(f func()) {
	for _, p := range a.workers {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	limit := time.After(time.Minute)
	for _, p := range a.workers {
		select {
		case <-p.ended:
		case <-limit:
			a.failed(fmt.Errorf("worker %d has not ended", p.slot))
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
	f()
	for _, p := range a.workers {
		if err := a.start(p); err != nil {
			a.failed(err)
		}
	}
}

// fight runs workers under faults and fills the history.
func (a *arena) fight(kinds []string, h *history.History) error {
	h.Run = history.Run{
		Deployment: a.cfg.deployment, Masters: a.cfg.masters, Replicas: a.cfg.replicas, Server: a.nodes[0].Binary(),
		Seed: a.cfg.seed, TTL: int64(a.longest), Began: now(), Commit: commit(),
	}
	for _, p := range a.workers {
		if err := a.start(p); err != nil {
			return err
		}
	}
	n := &nemesis{arena: a, rng: rand.New(rand.NewPCG(a.cfg.seed, 1)), kinds: kinds}
	n.rage(time.Now().Add(a.cfg.duration), a.cfg.gap)
	h.Run.Healed = now()
	failed := a.finish()
	h.Run.Ended = now()
	h.Faults = append(append(h.Faults, n.faults...), a.observed.faults()...)
	h.Accesses, h.Holds = a.registers.taken(), a.granted()
	return errors.Join(failed, a.events(h))
}

// deleteMarkers has all masters be found anew.
func (a *arena) deleteMarkers() {
	for _, at := range a.nodes {
		_, _ = at.Command("DEL", "fencelock:master")
	}
}

func (a *arena) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errs = append(a.errs, err)
}

// longestFinish is how long the workers may take from the end of all faults to their own. It is less than longestEnd:
// a worker that is told to quit prints all its goroutines, one that panics does not.
const longestFinish = 75 * time.Second

// finish makes the workers take every lock once more, and waits for their end.
func (a *arena) finish() error {
	errs := a.errs
	for _, p := range a.workers {
		p.signal(syscall.SIGUSR1)
	}
	limit, stop := context.WithTimeout(context.Background(), longestFinish)
	defer stop()
	for _, p := range a.workers {
		select {
		case err := <-p.ended:
			if err != nil {
				errs = append(errs, fmt.Errorf("worker %d: %w", p.slot, err))
			}
		case <-limit.Done():
			p.signal(syscall.SIGQUIT) // it prints its goroutines
			errs = append(errs, fmt.Errorf("worker %d has not ended", p.slot), <-p.ended)
		}
	}
	return errors.Join(errs...)
}

// events reads the records of the workers.
func (a *arena) events(h *history.History) error {
	for _, out := range a.outs {
		file, err := os.Open(out)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was killed before it began
		}
		if err != nil {
			return err
		}
		err = h.Read(file)
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}
	}
	return nil
}

// left names the locks that still have a holder or a waiter on some master. It is called after all leases have expired.
func (a *arena) left(ctx context.Context) ([]string, error) {
	w := &worker{cfg: workerConfig{Tuned: true, TTL: a.ttl, Longest: a.longest, Masters: a.masters}}
	o, err := w.tryToOpen()
	if err != nil {
		return nil, err
	}
	defer o.close()
	var all []string
	for i := range a.names {
		for _, name := range []string{fmt.Sprint("n", i), fmt.Sprint("mn", i)} {
			state, err := o.locker.Inspect(ctx, name)
			if err != nil {
				return nil, err
			}
			for _, m := range state.Masters {
				if len(m.Holders)+len(m.Waiters) > 0 {
					all = append(all, fmt.Sprintf("%s on master %d: holders %+v, waiters %+v", name, m.Index, m.Holders, m.Waiters))
				}
			}
		}
	}
	for _, n := range a.nodes {
		all = append(all, lasting(n)...)
	}
	return all, nil
}

// lasting names the keys of a server that do not expire, but for that of its place among the masters.
func lasting(n *node) (all []string) {
	reply, _ := n.Command("KEYS", "*")
	keys, _ := reply.([]any)
	for _, key := range keys {
		if name, ok := key.(string); ok && name != "fencelock:master" {
			if left, err := n.Command("PTTL", name); err == nil && left == int64(-1) {
				all = append(all, fmt.Sprintf("key %q on master %d does not expire", name, n.master))
			}
		}
	}
	return all
}

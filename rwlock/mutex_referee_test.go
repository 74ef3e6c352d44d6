package rwlock_test

import (
	"context"
	"errors"
	"flag"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

var refereed = flag.Int64("rwlock.grants", testredis.Few[int64](5_000, 20_000),
	"how many grants of an RWMutex are watched")

const (
	refereedProcesses  = 4
	refereedGoroutines = 16
	refereedTTL        = time.Second
	refereedWait       = 30 * refereedTTL // several losses and freezes one after the other, and far less than for ever
)

// Over many grants on real servers, handed on within processes and between them, one goroutine at a time is in and
// trusted, tokens go up from each to the next, a guard never refuses whoever is trusted, each process gets its share,
// and nobody waits for long. The same with every hundredth message lost; and with the process that holds the lock
// frozen for two TTLs every few seconds, where the guard refuses whoever wakes up too late.
func TestRefereeOverManyGrants(t *testing.T) {
	for _, masters := range []int{1, 3} {
		for _, trouble := range []struct {
			name   string
			lossy  bool
			frozen bool
			part   int64 // of the grants: what is lost takes its time
		}{{"all messages", false, false, 1}, {"1 % of messages lost", true, false, 10}, {"holder frozen", false, true, 1}} {
			name := map[int]string{1: "one master, ", 3: "three masters, "}[masters] + trouble.name
			t.Run(name, func(t *testing.T) {
				g := &grants{t: t, judge: judge.For(t, "referee"), most: *refereed, freezing: trouble.frozen}
				if *refereed <= 20_000 {
					g.most /= trouble.part
				}
				var servers []*testredis.Server
				for range masters {
					servers = append(servers, testredis.Start(t))
				}
				for i := range g.processes {
					g.processes[i] = newRefereed(t, servers, trouble.lossy)
				}
				took := g.run()
				t.Logf("%d grants in %v, longest wait %v, by process %v, %d lost, of them %d refused by the guard, %d freezes",
					g.n.Load(), took, time.Duration(g.longest.Load()), g.shares(), g.lost.Load(), g.refused.Load(), g.freezes.Load())
				require.Less(t, time.Duration(g.longest.Load()), refereedWait, "longest wait")
				if !trouble.frozen {
					require.True(t, g.isFair(), "each has its share")
				}
			})
		}
	}
}

// refereedProcess is a process that can be frozen: its goroutines stop wherever they look at the gate, and nothing gets
// in or out.
type refereedProcess struct {
	mu     *rwlock.RWMutex
	links  []*testredis.Link
	gate   sync.RWMutex
	grants atomic.Int64
}

func newRefereed(t *testing.T, servers []*testredis.Server, lossy bool) *refereedProcess {
	p := &refereedProcess{}
	var clients []rueidis.Client
	for _, s := range servers {
		link := testredis.NewLink(t, s.Option())
		if lossy {
			var n atomic.Int64
			link.DropPushes(func([]string) bool { return n.Add(1)%100 == 0 })
		}
		p.links, clients = append(p.links, link), append(clients, link.Client(t))
	}
	var locker *rwlock.Locker
	var err error
	if len(clients) == 1 {
		locker, err = rwlock.New(clients[0], rwlock.WithTTL(refereedTTL))
	} else {
		locker, err = redlock.New(clients, rwlock.WithTTL(refereedTTL))
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	p.mu = locker.RWMutex("n")
	return p
}

// look stands still while the process is frozen.
func (p *refereedProcess) look() {
	p.gate.RLock()
	defer p.gate.RUnlock()
}

// freeze lets the process stand still for two TTLs.
func (p *refereedProcess) freeze() {
	p.gate.Lock()
	defer p.gate.Unlock()
	for _, link := range p.links {
		link.Hold(testredis.Both)
	}
	time.Sleep(2 * refereedTTL)
	for _, link := range p.links {
		link.Restore()
	}
}

// grants are who has held the lock.
type grants struct {
	t         *testing.T
	most      int64
	began     time.Time
	processes [refereedProcesses]*refereedProcess
	guard     fencing.Watermark
	n         atomic.Int64
	judge     *judge.Judge
	longest   atomic.Int64
	lost      atomic.Int64
	refused   atomic.Int64
	freezing  bool
	due       atomic.Bool // the next who holds it is to be frozen
	freezes   atomic.Int64
}

// holding is one who is in.
type holding struct {
	token fencing.Token
	ctx   context.Context
	left  atomic.Bool
}

func (h *holding) Mode() rwlock.Mode    { return rwlock.Write }
func (h *holding) Token() fencing.Token { return h.token }

// Err compares times: the end of a context may come late on a busy machine.
func (h *holding) Err() error {
	deadline, ok := fencing.Deadline(h.ctx, "n")
	switch {
	case h.left.Load():
		return rwlock.ErrReleased
	case !ok || h.ctx.Err() != nil || !time.Now().Before(deadline):
		return rwlock.ErrLost
	}
	return nil
}

// run returns how long it took.
func (g *grants) run() time.Duration {
	g.began = time.Now()
	var all sync.WaitGroup
	for _, p := range g.processes {
		for range refereedGoroutines {
			all.Go(func() {
				for !g.over() {
					g.play(p)
				}
			})
		}
	}
	for g.freezing && !g.over() {
		g.due.Store(true)
		time.Sleep(4 * refereedTTL)
	}
	all.Wait()
	return time.Since(g.began)
}

// over reports whether there were enough grants, and at least one freeze where there are to be some. The shares need
// time to become even: whom a busy machine lets run for longer has more of a few.
func (g *grants) over() bool {
	switch {
	case g.t.Failed():
		return true
	case g.n.Load() < g.most:
		return false
	case g.freezing:
		return g.freezes.Load() > 0
	}
	return g.isFair() || time.Since(g.began) > testkit.Patience
}

// isFair reports whether each process has had about as much as the others. Of a few grants, the first to come has the
// most.
func (g *grants) isFair() bool {
	return g.most < 20_000 || !slices.ContainsFunc(g.shares(), func(share float64) bool {
		return math.Abs(share*refereedProcesses-1) > 0.5
	})
}

func (g *grants) play(p *refereedProcess) {
	p.look()
	at, asked := g.judge.Begin("n"), time.Now()
	if err := p.mu.Lock(g.t.Context()); err != nil {
		g.t.Error(err)
		return
	}
	h := &holding{token: p.mu.Token(), ctx: p.mu.Context(g.t.Context())}
	g.judge.Acquired(at, h) // trusted or not: it may have been frozen between the grant and here
	g.noteWait(time.Since(asked))
	if g.due.CompareAndSwap(true, false) {
		p.freeze()
		g.freezes.Add(1)
	}
	p.look()
	g.write(h)
	g.n.Add(1)
	p.grants.Add(1)
	h.left.Store(true)
	if err := p.mu.Unlock(g.t.Context()); err != nil {
		g.lost.Add(1)
		if !errors.Is(err, rwlock.ErrLost) && !errors.Is(err, rwlock.ErrNoQuorum) { // not confirmed by who is cut off
			g.t.Error(err)
		}
	}
}

// write has the guard judge whoever is in.
func (g *grants) write(h *holding) {
	fence, ok := fencing.FromContext(h.ctx, "n")
	require.True(g.t, ok)
	trusted := h.Err() == nil
	err := g.guard.Do(context.Background(), fence, func(context.Context) error { return nil })
	switch {
	case err == nil:
	case !errors.Is(err, fencing.ErrStale):
		g.t.Error(err)
	case trusted:
		g.t.Errorf("refused though it is trusted: %v", err)
	default:
		g.refused.Add(1)
	}
}

func (g *grants) noteWait(d time.Duration) {
	for {
		longest := g.longest.Load()
		if int64(d) <= longest || g.longest.CompareAndSwap(longest, int64(d)) {
			return
		}
	}
}

// shares returns the part of all grants that each process got.
func (g *grants) shares() (all []float64) {
	for _, p := range g.processes {
		all = append(all, math.Round(1000*float64(p.grants.Load())/float64(g.n.Load()))/1000)
	}
	return all
}

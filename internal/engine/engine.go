package engine

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Config is what an Engine is made from. Every field is set: defaults and validation are the caller's.
type Config struct {
	Clients        []rueidis.Client // one for each master
	Prefix         string           // of every key and channel
	TokenTTL       time.Duration    // how long the token counter of an idle lock is kept
	NodeTimeout    time.Duration    // how long one of several masters, or a batch in the background, is waited for
	ReleaseTimeout time.Duration    // how long Release and Close wait for the masters
	Quarantine     time.Duration    // the longest TTL of any client: how long a master that lost its data abstains
	Drift          float64          // how far the rates of two clocks may differ
	Logger         *slog.Logger
	Hooks          Hooks
	Clock          Clock
}

// Hooks are told of a lease's life. Each may be nil; none may block.
type Hooks struct {
	Waiting, Acquired, Renewed, Released func(*Lease)
	Lost                                 func(*Lease, *Loss)
}

// Stats counts what an Engine has done, and what it has now.
type Stats struct {
	Held, Waiting                                              int
	Acquired, Contended, HandedOff, Lost, Renewed, RenewFailed uint64
}

type counters struct {
	held, waiting                                              atomic.Int64
	acquired, contended, handedOff, lost, renewed, renewFailed atomic.Uint64
}

// Engine keeps the leases of one locker.
type Engine struct {
	cfg        Config
	clock      Clock
	drift      drift
	client     string // names this engine to the masters and in its channel
	programs   programs
	masters    []*master
	schedule   *schedule
	counters   counters
	tokenTTL   string        // cfg.TokenTTL as an argument
	quarantine string        // cfg.Quarantine as an argument
	markerKey  string        // of every master
	seen       atomic.Uint64 // the greatest token of any lock
	census     census

	life    context.Context // ends when Close gives up on the masters
	endLife context.CancelFunc
	stop    chan struct{} // ends the schedule
	tasks   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	leases   map[string]*Lease // by hold
	cleanups map[*cleanup]struct{}
	releases int           // by callers, under way
	drained  chan struct{} // of a Close that waits: closed when the last cleanup and release have ended
	gone     chan struct{} // closed when Close has done its work
}

// New starts an engine over the masters: one goroutine for the schedule and one for each master's lane.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg: cfg, clock: cfg.Clock, drift: drift(cfg.Drift), client: newULID(), programs: newPrograms(),
		tokenTTL: millis(cfg.TokenTTL), quarantine: millis(cfg.Quarantine), markerKey: markerKey(cfg.Prefix), stop: make(chan struct{}),
		leases: make(map[string]*Lease), cleanups: make(map[*cleanup]struct{}),
		gone: make(chan struct{}),
	}
	e.life, e.endLife = context.WithCancel(context.Background())
	e.schedule = newSchedule(cfg.Clock, e.suspended)
	for i, client := range cfg.Clients {
		e.masters = append(e.masters, newMaster(e, i, client))
	}
	e.spawn(func() { e.schedule.run(e.stop) })
	for _, m := range e.masters {
		e.spawn(func() { m.lane.run(e.life) })
	}
	return e
}

func (e *Engine) quorum() int { return len(e.masters)/2 + 1 }

// spawn runs the task in a goroutine that Close waits for; after Close it starts none and returns false.
func (e *Engine) spawn(task func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.tasks.Go(task)
	}
	return !e.closed
}

// fanOut asks every master at once, each in a goroutine of its own; a single master is asked in the caller's.
func (e *Engine) fanOut(ask func(*master)) {
	if len(e.masters) == 1 {
		ask(e.masters[0])
		return
	}
	for _, m := range e.masters {
		if !e.spawn(func() { ask(m) }) {
			ask(m)
		}
	}
}

// suspended looks at every lease again after the wall clock has run ahead.
func (e *Engine) suspended(now instant) {
	for _, l := range e.snapshot() {
		l.ring(now)
	}
}

func (e *Engine) snapshot() []*Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*Lease, 0, len(e.leases))
	for _, l := range e.leases {
		all = append(all, l)
	}
	return all
}

func (e *Engine) register(l *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.leases[l.hold] = l
	}
	return !e.closed
}

func (e *Engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

func (e *Engine) forget(hold string) {
	e.mu.Lock()
	delete(e.leases, hold)
	e.mu.Unlock()
}

func (e *Engine) lookup(hold string) *Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leases[hold]
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	c := &e.counters
	return Stats{
		Held: int(c.held.Load()), Waiting: int(c.waiting.Load()),
		Acquired: c.acquired.Load(), Contended: c.contended.Load(), HandedOff: c.handedOff.Load(),
		Lost: c.lost.Load(), Renewed: c.renewed.Load(), RenewFailed: c.renewFailed.Load(),
	}
}

// Close fails every waiter, releases every lease, waits at most the release timeout for the masters to confirm, and
// returns when no goroutine of the engine is left, a second call too. A dial that is under way is waited for beyond
// that timeout.
func (e *Engine) Close() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		<-e.gone
		return
	}
	e.closed = true
	e.mu.Unlock()
	for _, l := range e.snapshot() {
		l.shutDown()
	}
	e.mu.Lock()
	drained := make(chan struct{})
	unconfirmed := len(e.cleanups)+e.releases > 0
	if unconfirmed { // not before: what the first lease left may be cleaned up while the next one shuts down
		e.drained = drained
	}
	e.mu.Unlock()
	if unconfirmed {
		patience := time.NewTimer(e.cfg.ReleaseTimeout)
		select {
		case <-drained:
		case <-patience.C:
		}
		patience.Stop()
	}
	e.endLife()
	close(e.stop)
	e.tasks.Wait()
	close(e.gone)
}

// releasing counts the callers' releases, for which Close waits.
func (e *Engine) releasing(change int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.releases += change
	e.noteDrained()
}

// noteDrained lets a waiting Close go on when nothing is left to be released, under mu.
func (e *Engine) noteDrained() {
	if len(e.cleanups)+e.releases == 0 && e.drained != nil {
		close(e.drained)
		e.drained = nil
	}
}

// saw notes a token, so that the next proposal is beyond it.
func (e *Engine) saw(token fencing.Token) {
	for {
		seen := e.seen.Load()
		if uint64(token) <= seen || e.seen.CompareAndSwap(seen, uint64(token)) {
			return
		}
	}
}

// newULID draws all its 80 random bits from the system: a hold that met another's id would be two holders.
func newULID() string { return newULIDAt(time.Now()) }

// newULIDAt is for a hold that takes the place of an older one.
func newULIDAt(t time.Time) string {
	return ulid.MustNew(ulid.Timestamp(t), rand.Reader).String()
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

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
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/events"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/scripts"
)

// Config is what an Engine is made from. Every field is set: defaults and validation are the caller's.
type Config struct {
	Clients        []rueidis.Client // one for each master
	Prefix         string           // of every key and channel
	NodeTimeout    time.Duration    // how long a verdict waits for a master, and a round of renewals for a quorum
	ReleaseTimeout time.Duration    // how long Release and Close wait for the masters
	LongestTTL     time.Duration    // of any client of these masters
	Drift          float64          // how far the rates of two clocks may differ
	Logger         *slog.Logger
	Hooks          Hooks
	Clock          clock.Clock
}

// Engine keeps the leases of one locker.
type Engine struct {
	cfg          Config
	clock        clock.Clock
	drift        clock.Drift
	markerKey    string
	masters      []*transport.Master
	waiters      []*waitSets        // of each master
	releases     []*pendingReleases // of each master
	scripts      atomic.Pointer[scriptSet]
	markerScript *transport.Script
	timers       *timerqueue.Queue
	events       events.Relay
	counters     counters
	maxToken     atomic.Uint64 // of any lock
	roundTrip    atomic.Int64  // the longest of late
	membership   *membership

	life    context.Context // ends when Close gives up on the masters
	endLife context.CancelFunc
	stop    chan struct{} // ends the timers
	tasks   sync.WaitGroup
	pending atomic.Int64  // releases that are not confirmed
	settled chan struct{} // tells Close that there are none left
	gone    chan struct{} // closed when Close has done its work

	mu     sync.Mutex
	closed bool
	leases map[string]*Lease // by hold
}

// New starts an engine over the masters: one goroutine for the timers and one for each master's pipeline.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg: cfg, clock: cfg.Clock, drift: clock.Drift(cfg.Drift), markerKey: markerKey(cfg.Prefix),
		stop: make(chan struct{}), settled: make(chan struct{}, 1), gone: make(chan struct{}),
		leases: make(map[string]*Lease),
	}
	e.life, e.endLife = context.WithCancel(context.Background())
	e.timers = timerqueue.New(cfg.Clock, e.suspended)
	e.scripts.Store(newScriptSet(""))
	e.markerScript = transport.NewScript(scripts.Marker, "")
	e.membership = newMembership(e)
	e.connect(channel(cfg.Prefix, newULID(time.Now())))
	e.spawn(func() { e.timers.Run(e.stop) })
	for _, m := range e.masters {
		e.spawn(m.Run)
	}
	return e
}

// patience is how long a batch of calls is waited for: longer than any link that a lock can be used over, and not past
// the time at which a client that is tuned for locks finds a connection dead.
const patience = 5 * time.Second

// quarantineMin is the least that a master abstains: tokens may run ahead of its clock by a second.
const quarantineMin = 2 * time.Second

// connect makes the masters. channel is where the messages to this engine arrive.
func (e *Engine) connect(channel string) {
	shared := &transport.Config{
		Life: e.life, Clock: e.clock, Drift: e.drift, Patience: patience, Silence: e.cfg.NodeTimeout,
		MarkerKey: e.markerKey, Channel: channel,
		Renew: func() *transport.Script { return e.scripts.Load().renew },
		Spawn: e.spawn, OnMessage: e.onMessage, OnListen: e.onListen, OnDeaf: e.onDeaf, OnMoved: e.onMoved,
		OnSilence: func(m *transport.Master, n *transport.Node, err error) { e.waiters[m.Index].report(n, err) },
	}
	if len(e.cfg.Clients) > 1 {
		shared.Quarantine = max(e.cfg.LongestTTL, quarantineMin)
	}
	for i, client := range e.cfg.Clients {
		m := transport.NewMaster(shared, i, client)
		e.masters = append(e.masters, m)
		e.waiters = append(e.waiters, &waitSets{e: e, m: m, byName: make(map[string]*waitSet), outages: make(map[*transport.Node]*outage)})
		e.releases = append(e.releases, newPendingReleases(e, m))
	}
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

// suspended looks at every lease again after the wall clock has run ahead.
func (e *Engine) suspended(now clock.Instant) {
	for _, l := range e.snapshot() {
		l.Fire(now)
	}
}

// sawToken notes a token, so that the next proposal is beyond it.
func (e *Engine) sawToken(token fencing.Token) {
	for {
		seen := e.maxToken.Load()
		if uint64(token) <= seen || e.maxToken.CompareAndSwap(seen, uint64(token)) {
			return
		}
	}
}

// newULID draws all its 80 random bits from the system: a hold that met another's id would be two holders.
func newULID(t time.Time) string { return ulid.MustNew(ulid.Timestamp(t), rand.Reader).String() }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/admin"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/crowd"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/masterset"
	"github.com/seed74116694/fencelock/internal/outage"
	"github.com/seed74116694/fencelock/internal/releases"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/tokens"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Config makes an Engine. The caller sets every field, with its defaults, and has checked them.
type Config struct {
	Clients        []rueidis.Client // one for each master
	Prefix         string           // of every key and channel
	NodeTimeout    time.Duration    // how long a verdict waits for a master, and a round of renewals for a quorum
	ReleaseTimeout time.Duration    // how long Release and Close wait for the masters
	LongestTTL     time.Duration    // of any client of these masters
	Replicas       int              // replicas of each master that must have a grant before it counts; 0: none
	ReplicaTimeout time.Duration    // how long the replicas are given
	ConfirmHandOff bool             // a hand-off counts only once a renewal of it is answered
	Drift          float64          // how far the rates of two clocks may differ
	Logger         *slog.Logger
	Hooks          Hooks
	Clock          clock.Clock
}

// Engine keeps the leases of one locker. New sets its fields, and they do not change. A part that needs a mutex has its
// own.
type Engine struct {
	cfg   Config
	clock clock.Clock
	drift clock.Drift
	world hold.World // what the holds share

	// replicated: a grant counts once that many replicas have it. WAIT follows each acquire, raise, regain and renewal:
	// without the last, the deadline would move past the expiry that a replica knows. A master that too few replicas
	// confirm is released.
	//
	// confirmsHandOff: a grant that another client's request has brought about is renewed before it counts. Client A
	// releases, say, and the server sends B the message of the grant; then it fails, and its log lacks that grant. The
	// renewal is a later write on the same server, so its answer, or the WAIT after it, covers both writes. It names the
	// token, so a server that took over without the grant refuses it.
	replicated, confirmsHandOff bool

	keys           wire.Keyspace
	masters        masters
	masterSet      *masterset.Set
	restarts       restarts
	registry       registry
	waiters        []*waitSets // of each master
	crowds         crowd.Crowds[*acquisition]
	contentions    crowd.Contentions
	wakeUps        atomic.Uint64      // how often all waiters of a master were made to ask
	releases       []*releases.Queues // of each master
	renewalOutages outage.Set         // of the servers that do not renew leases
	admin          *admin.Admin
	pending        pendingReleases
	unansweredAt   atomic.Int64 // when a renewal last had no answer although it may run, by the monotonic clock
	unawaited      atomic.Int64 // releases of WithBackgroundRelease that no quorum has answered
	tokens         *tokens.Floor
	described      [fencing.Write + 1]atomic.Pointer[description] // the last one of each mode
	scripts        scriptSets
	timers         *timerqueue.Queue
	timeouts       timeouts // of the goroutines that call
	observers      observers
	counters       counters
	losses         losses

	life         context.Context // ends when Close gives up on the masters
	endLife      context.CancelFunc
	listening    context.Context // ends when Close begins
	endListening context.CancelFunc
	stop         chan struct{} // ends the timers
	gone         chan struct{} // closed when Close has done its work
	tasks        tasks
}

// New starts an engine over the masters: one goroutine for the timers and one for each master's pipeline. It sends
// nothing. The first acquisition opens the connections and checks the masters.
func New(cfg Config) *Engine {
	n := len(cfg.Clients)
	e := &Engine{
		cfg: cfg, clock: cfg.Clock, drift: clock.Drift(cfg.Drift), keys: wire.NewKeyspace(cfg.Prefix, n),
		registry: registry{holds: make(map[string]*driver)}, pending: pendingReleases{none: make(chan struct{}, 1)},
		stop: make(chan struct{}), gone: make(chan struct{}),
		replicated: cfg.Replicas > 0, confirmsHandOff: cfg.Replicas > 0 || cfg.ConfirmHandOff,
	}
	// The parts hold atomics and mutexes, so they are filled in in place.
	ofHolds := slices.ContainsFunc(cfg.Hooks.Of[:], func(hook Hook) bool { return hook != nil })
	e.observers = observers{hooks: cfg.Hooks, ofHolds: ofHolds, logger: cfg.Logger}
	e.life, e.endLife = context.WithCancel(transport.EndingDials(context.Background()))
	e.listening, e.endListening = context.WithCancel(e.life)
	e.timers = timerqueue.New(cfg.Clock, e.suspended)
	e.scripts = make(scriptSets, n)
	for i := range e.scripts {
		e.scripts[i].Store(newScriptSet(""))
	}
	e.connect()
	e.masterSet = e.newMasterSet()
	e.tokens = tokens.New(cfg.Clock, n, e.estimate)
	e.admin = e.newAdmin()
	e.world = e.holdWorld()
	e.tasks.spawn(func() { e.timers.Run(e.stop) })
	for _, m := range e.masters {
		e.tasks.spawn(m.Run)
	}
	return e
}

// connect makes the masters and the engine's state for each. It opens no connection: the first call does. The masters
// know nothing of leases. These functions define what they do with a message and with another server, and where they
// start a goroutine that Close waits for.
func (e *Engine) connect() {
	shared := &transport.Config{
		Listening: e.listening, Life: e.life, Clock: e.clock, Drift: e.drift,
		BatchTimeout: batchTimeout, SlowCallAfter: e.cfg.NodeTimeout,
		MarkerKey: e.keys.Marker, Channel: e.keys.Channel(newULID(e.clock.Now().Wall)),
		Replicas: e.cfg.Replicas, ReplicaTimeout: e.cfg.ReplicaTimeout,
		Renew: func(m *transport.Master) *transport.Script { return e.scripts.of(m).renew },
		Spawn: e.tasks.spawn, OnMessage: e.onMessage, OnListen: e.onListen, OnMoved: e.onMoved,
		OnSubscribeFailed: e.onSubscribeFailed, OnFirstAnswer: func(n *transport.Node) { e.admin.AskEviction(n) },
		OnUnread: func() { e.masterSet.Recheck() },
		OnSlowCall: func(m *transport.Master, n *transport.Node, err error) {
			e.waiters[m.Index].report(n, err, e.cfg.NodeTimeout)
		},
		OnSeparated: func(n *transport.Node, refusal error) {
			e.observers.warnOfServer("server refuses calls with several locks; sending them one by one", n, refusal)
		},
	}
	// A single master cannot abstain, because no other master could decide. Its clock is its token floor instead.
	if len(e.cfg.Clients) > 1 {
		shared.Quarantine = masterset.Quarantine(e.cfg.LongestTTL)
	}
	for i, client := range e.cfg.Clients {
		m := transport.NewMaster(shared, i, client)
		e.masters = append(e.masters, m)
		e.waiters = append(e.waiters, &waitSets{e: e, m: m, byName: make(map[string]*waitSet)})
		e.releases = append(e.releases, releases.New(releases.Config{
			Master: m, Clock: e.clock, Timers: e.timers, Keys: e.keys, Pending: e.pending.add,
			Script:  func(plain bool) *transport.Script { return e.scripts.of(m).releaseOf(plain) },
			Dropped: func() { e.counters.unconfirmed.Add(1) },
			GoOn:    func(key string, more wire.More) { e.waiters[i].goOn(key, more) },
		}))
	}
}

// newMasterSet makes the check of the masters. It defines what follows from it for the waiters and the scripts.
func (e *Engine) newMasterSet() *masterset.Set {
	return masterset.New(masterset.Config{
		Masters: e.masters, Key: e.keys.Marker, NodeTimeout: e.cfg.NodeTimeout, LongestTTL: e.cfg.LongestTTL,
		QuorumTimeout: batchTimeout, Clock: e.clock, Life: e.life, Spawn: e.tasks.spawn,
		Warn: e.observers.warn, Info: e.observers.info,
		NewID:     func() string { return newULID(e.clock.Now().Wall) },
		OnProcess: e.scripts.salt,
		OnRefused: func(cause error) {
			for _, w := range e.waiters {
				// One without a first answer is not among them. It becomes a waiter later, and the next check finds it.
				for _, a := range w.all() {
					a.hold.lease.mu.Lock()
					if a.hold.acquisition != nil {
						a.giveUp(a.failure(lockerr.InvalidMasters, cause))
					}
					a.hold.lease.mu.Unlock()
				}
			}
		},
		OnVotes: func() {
			for _, w := range e.waiters {
				w.wakeAll()
			}
			if e.restarts.seen(e.masters) {
				e.renewAll()
			}
		},
	})
}

// restarts finds out which masters have another marker than before: they have restarted, or have lost their data.
type restarts struct {
	mu      sync.Mutex
	markers []string // by master: the id of the last marker that was read, or ""
}

func (r *restarts) seen(all masters) (any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.markers == nil {
		r.markers = make([]string, len(all))
	}
	for i, m := range all {
		if id := m.Vote(0).Seen; id != wire.SeenNone {
			any = any || r.markers[i] != "" && r.markers[i] != id
			r.markers[i] = id
		}
	}
	return any
}

// renewAll renews all leases at once, after a master may have lost them: the renewal gives them back to it. Master 2 of
// three restarts empty, say. Until the next renewal that is due, a lease would be lost with master 0 or 1.
func (e *Engine) renewAll() {
	for h := range e.registry.each {
		h.lease.mu.Lock()
		h.renewNow()
		h.lease.mu.Unlock()
	}
}

// batchTimeout bounds the wait for a batch of calls. A link that is slower is of no use for locks, and a client of Dial
// finds a connection dead before.
const batchTimeout = 5 * time.Second

// Now reads the clocks that determine the trust in leases.
func (e *Engine) Now() clock.Instant { return e.clock.Now() }

// Begin has a check of the masters begin, which the first acquisition would begin otherwise. It waits for nothing.
func (e *Engine) Begin() { e.masterSet.Begin() }

func (e *Engine) Masters() int { return len(e.masters) }

func (e *Engine) Admin() *admin.Admin { return e.admin }

func (e *Engine) newAdmin() *admin.Admin {
	return &admin.Admin{Config: admin.Config{
		Masters: e.masters, MasterSet: e.masterSet, Keys: e.keys, Clock: e.clock, Timeout: e.cfg.ReleaseTimeout,
		AskTimeout: batchTimeout, Proposal: e.tokens.Proposal, Warn: e.observers.warn, Life: e.life,
		Closed: e.registry.isClosed, Spawn: e.tasks.spawn,
		Scripts: func(m *transport.Master) (inspect, breaks *transport.Script) {
			all := e.scripts.of(m)
			return all.inspect, all.breaks
		},
		GoOn: func(m *transport.Master, key string, more wire.More) { e.waiters[m.Index].goOn(key, more) },
	}}
}

// Found makes new masters a set whose first lock is granted at once, by the word of the caller: see masterset.Found. It
// refuses masters that have any key of the prefix.
func Found(ctx context.Context, cfg Config) error {
	e := New(cfg)
	defer e.Close()
	err := e.masterSet.Found(ctx, func() error { return e.admin.InUse(ctx) })
	if cause := errs.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return errs.Join(cause, err)
	}
	return err
}

// Acquire asks for a hold and, if the request's entry is Wait or Upgrade, waits until it is granted or ctx ends. On
// success l is a live lease. On failure the error is an *Error, and anything that the masters may have granted is
// released in the background.
func (e *Engine) Acquire(ctx context.Context, l *Lease, r Request) error {
	return newAcquisition(ctx, e, l.begin(), r).run(ctx)
}

// lastUnanswered returns when a renewal last had no answer although it may run later.
func (e *Engine) lastUnanswered() clock.Instant {
	return clock.Instant{Mono: time.Duration(e.unansweredAt.Load())}
}

// holdWorld returns what the holds of the engine share.
func (e *Engine) holdWorld() hold.World {
	return hold.World{
		Drift: e.drift, Confirms: e.confirmsHandOff, Risks: e.observers.hooks.Of[OnAtRisk] != nil,
		Reach: e.tokens.Reach, Stall: e.stallAfter, Silence: e.silence, Jitter: mathrand.Float64,
	}
}

// estimate estimates the clock of a master, by the server that has its marker.
func (e *Engine) estimate(master int, now clock.Instant) (micros int64, known, failing bool) {
	m := e.masters[master]
	micros, known = m.EstimateServerTime(e.keys.Marker, now)
	return micros, known, m.At(e.keys.Marker).Failing()
}

// stallAfter returns how long a round of renewals waits for a quorum before the next one starts: the node timeout, and
// over slow links their round trip in addition. Trust in the lease lasts until its deadline in either case.
func (e *Engine) stallAfter() time.Duration { return e.cfg.NodeTimeout + e.tokens.RoundTrip() }

const lateShare = 10 // a process that was late for this part of the wait for an answer may have caused the wait

// silence describes a master that has not answered since then. If this process was late meanwhile, it may not have read
// an answer that came in time, or has asked late.
func (e *Engine) silence(sent, now time.Duration) error {
	silence := &transport.NoReply{After: now - sent}
	if by := e.timers.Delayed(sent, now); by > silence.After/lateShare {
		return &lockerr.ProcessLate{By: by, Silence: silence}
	}
	return silence
}

// suspended checks every lease again after the wall clock has run ahead. A machine that slept for a minute wakes with
// timers that still count a minute. Without this check a lease that ended during the sleep would stand until they fire,
// or until a caller asks.
func (e *Engine) suspended(now clock.Instant) {
	// The timers count monotonic time, in which these leases may have much of theirs left.
	for h := range e.registry.each {
		h.Fire(now)
	}
}

// Close fails every waiter, releases every lease, waits at most the release timeout for the masters to confirm and at
// most as long again for the hooks, and returns when no goroutine of the engine is left. A second call returns no
// earlier. Close may be called from a hook. It ends the dials of a client from transport.Dial, and waits for those of
// another client even beyond that timeout.
func (e *Engine) Close() {
	if e.registry.close() {
		e.shutDown()
	} else {
		<-e.gone
	}
	// The hooks come last, since they get the releases. A hook may have called Close itself. Each call waits for the
	// hooks, so that no caller frees what they use while one runs.
	e.observers.relay.Close(e.cfg.ReleaseTimeout)
}

// shutDown does the work of the first Close. No acquisition begins any more.
func (e *Engine) shutDown() {
	until := e.clock.Now().Mono + e.cfg.ReleaseTimeout
	e.tasks.end()                    // nothing new is started; what runs may still post
	e.endListening()                 // a server that hangs keeps a listener, beside the releases and not after them
	for h := range e.registry.each { // before the waiters, which may be many: other processes wait for these
		shutDown(h, hold.Held, hold.Lost)
	}
	for h := range e.registry.each {
		shutDown(h, hold.Held, hold.Lost, hold.Asking)
	}
	// The releases need the pipelines and the timers, so these end only after them.
	e.pending.await(until - e.clock.Now().Mono)
	e.endLife()
	close(e.stop)
	e.tasks.group.Wait()
	close(e.gone)
}

// shutDown ends the hold, because the engine is closed, if it is in one of these phases. Both ends leave releases to
// the background, and Close waits for them.
func shutDown(h *driver, in ...hold.Phase) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	switch phase := h.life.Phase(); {
	case !slices.Contains(in, phase):
	case phase == hold.Asking:
		h.acquisition.giveUp(h.acquisition.failure(lockerr.Closed, lockerr.ErrClosed))
	default:
		h.step(hold.Event{Kind: hold.Release, Way: hold.Together})
	}
}

// Holds returns the holds of this process one after the other, in any order, each in its state at that moment. The
// loop's body runs without a mutex. A hold that begins, ends or restarts during the loop may be missing.
func (e *Engine) Holds() iter.Seq[HoldState] {
	return func(yield func(HoldState) bool) {
		for h := range e.registry.each {
			h.lease.mu.Lock()
			s, stands := h.state()
			h.lease.mu.Unlock()
			if stands && !yield(s) {
				return
			}
		}
	}
}

func (e *Engine) Losses() []LostLease {
	l := &e.losses
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.kept)
}

func (e *Engine) Stats() Stats {
	c := &e.counters
	s := Stats{
		Held: int(c.held.Load()), Waiting: int(c.waiting.Load()),
		Acquired: c.acquired.Load(), Contended: c.contended.Load(), HandedOff: c.handedOff.Load(),
		Adopted: c.adopted.Load(), Detached: c.detached.Load(),
		Lost: make(map[lockerr.Reason]uint64, len(lockerr.Reasons)), Unconfirmed: c.unconfirmed.Load(),
		Renewed: c.renewed.Load(), RenewFailed: c.renewFailed.Load(),
		EventsDropped: e.observers.relay.Dropped(),
	}
	f := &c.failures
	s.Failed = Failures{f.contended.Load(), f.noQuorum.Load(), f.closed.Load(), f.refused.Load()}
	for i, reason := range lockerr.Reasons {
		s.Lost[reason] = c.losses[i].Load()
	}
	if s.Waiting == 0 {
		return s
	}
	for h := range e.registry.each {
		h.lease.mu.Lock()
		a := h.acquisition
		if a != nil && a.waiting && a.cutOff() {
			s.Unreachable++
		}
		if a != nil && a.waiting && e.masters.subscriptionDown(h.key) {
			s.NoMessages++
		}
		h.lease.mu.Unlock()
	}
	return s
}

// registry has the holds of an engine by their ids. Messages and Close find a hold through it, so a hold is added
// before its first request is sent, and removed when nothing may change it any more.
type registry struct {
	mu     sync.Mutex // guards what follows; acquired under a lease's mutex, never the other way round
	closed bool
	holds  map[string]*driver
}

// add registers the hold under its id. It reports false after close.
func (r *registry) add(h *driver) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.holds[h.id] = h
	}
	return !r.closed
}

// forget removes the hold. Messages for it are ignored from then on.
func (r *registry) forget(id string) {
	r.mu.Lock()
	delete(r.holds, id)
	r.mu.Unlock()
}

// lookup returns nil for a hold that has ended, or that belongs to another process.
func (r *registry) lookup(id string) *driver {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds[id]
}

// each yields the holds one after the other, without a copy of them all. A map may be changed between two steps of an
// iteration, so the mutex is held for each step and not between them: that of a lease is acquired before it. A hold may
// end before the caller reaches it, so each use checks the phase.
func (r *registry) each(yield func(*driver) bool) {
	r.mu.Lock()
	for _, h := range r.holds {
		r.mu.Unlock()
		if !yield(h) {
			return
		}
		r.mu.Lock()
	}
	r.mu.Unlock()
}

// close stops the registry from accepting holds. It reports whether it is the first call. A restart of an acquisition
// is refused too, and fails with ErrClosed.
func (r *registry) close() (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = !r.closed
	r.closed = true
	return first
}

func (r *registry) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// tasks tracks the goroutines of an engine that Close waits for.
type tasks struct {
	mu    sync.Mutex // guards ended, and serializes spawn and end
	ended bool
	group sync.WaitGroup
}

// spawn runs the task in its own goroutine. After end it starts none and returns false.
func (t *tasks) spawn(task func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.group.Go(task)
	}
	return !t.ended
}

// end makes spawn start no further tasks. Waiting for the group is invalid while tasks may still be added to it.
func (t *tasks) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
}

// pendingReleases counts the releases that have no quorum's confirmation so far. Close waits for them.
type pendingReleases struct {
	n    atomic.Int64
	none chan struct{} // signals await that the count may be 0
}

// add counts a release that begins, or ends for good: confirmed, refused for good, or expired. If one part of the
// engine hands a release to another, the second part adds before the first subtracts, so the count is never 0 in
// between.
func (p *pendingReleases) add(change int64) {
	if p.n.Add(change) == 0 {
		select {
		case p.none <- struct{}{}:
		default:
		}
	}
}

// await returns when the count is 0, or after the given time. The signal may be old, because the count changes all the
// time, so await checks the count itself.
func (p *pendingReleases) await(most time.Duration) {
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	for p.n.Load() > 0 {
		select {
		case <-p.none:
		case <-timeout.C:
			return
		}
	}
}

// timeouts keeps the stopped timers of goroutines that have waited for several masters, for the next ones.
type timeouts struct{ stopped sync.Pool } // of *time.Timer

// start returns a timer that the caller has to stop.
func (t *timeouts) start(d time.Duration) *time.Timer {
	timer, _ := t.stopped.Get().(*time.Timer)
	if timer == nil {
		return time.NewTimer(d)
	}
	timer.Reset(d)
	return timer
}

func (t *timeouts) stop(timer *time.Timer) {
	if timer.Stop() {
		t.stopped.Put(timer)
	}
}

// newULID returns a ULID for a time of the wall clock. All its 80 random bits come from the system: two holds with one
// id would be two holders.
func newULID(wall time.Duration) string {
	text := ulidText(wall)
	return string(text[:])
}

func ulidText(wall time.Duration) (text [ulid.EncodedSize]byte) {
	var id ulid.ULID
	_ = id.SetTime(uint64(max(wall.Milliseconds(), 0))) // too large in the year 10889
	_, _ = rand.Read(id[6:])                            // it never fails: the process would have ended
	_ = id.MarshalTextTo(text[:])                       // its length is right
	return text
}

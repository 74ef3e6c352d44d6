package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
)

// Lease is the client's side of one hold: the trust in it, from the grant to Release or loss. Before the grant its
// acquisition decides. The zero value is made for Engine.Acquire. All methods may be called from any goroutine.
type Lease struct {
	hold
	trust     trust         // until when the lease stands
	limit     time.Duration // when MaxHold ends the lease, or never
	renewal   renewal
	timer     timerqueue.Timer // for the earliest of deadline, limit and renewal; set while the lease is held
	done      doneState
	successor atomic.Pointer[Lease] // the lease that this one was converted to
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.name }

// Mode returns the granted mode. A joined hold has the mode of its owner's standing hold.
func (l *Lease) Mode() fencing.Mode { return l.current().mode }

// Owner returns the owner's id.
func (l *Lease) Owner() string { return l.current().owner() }

// Hold returns the id of this acquisition.
func (l *Lease) Hold() string {
	l = l.lock()
	defer l.mu.Unlock()
	return l.id
}

// Token returns the fencing token.
func (l *Lease) Token() fencing.Token {
	l = l.lock()
	defer l.mu.Unlock()
	return l.token()
}

// MaxWait returns the limit of a wait under the lease's terms, 0 for none.
func (l *Lease) MaxWait() time.Duration { return l.terms.MaxWait }

// Deadline returns until when the lease is trusted, by this process's clocks: the zero time where Err returns an error.
func (l *Lease) Deadline() time.Time {
	l = l.lock()
	defer l.mu.Unlock()
	now := l.e.clock.Now()
	if l.expire(now); l.phase != held {
		return time.Time{}
	}
	// The wall clock may have been set since the grant, so the moment is computed from what is left by the monotonic
	// clock.
	return time.Now().Add(l.ends() - now.Mono)
}

// ends returns when the lease ends by the monotonic clock unless it is renewed.
func (l *Lease) ends() time.Duration { return min(l.trust.until().Mono, l.limit) }

// Trusted reports whether the lease stands at an instant of Engine.Now, as Err does, except that it ignores MaxHold. It
// does not block and changes nothing, because the goroutines of a shared hold call it for each entry. The caller passes
// the instant, because reading the clocks is most of the cost.
func (l *Lease) Trusted(now clock.Instant) bool {
	for {
		l = l.current()
		if !l.trust.until().Passed(now) {
			return true
		}
		if l.successor.Load() == nil { // else a conversion has just ended this lease
			return false
		}
	}
}

// Err returns nil while the lease is trusted, and ErrReleased or a *Loss after. It reads the clocks itself, so a
// process that was stopped learns of its loss with its first call and not when the timers fire.
func (l *Lease) Err() error {
	l = l.lock()
	defer l.mu.Unlock()
	l.expire(l.e.clock.Now())
	return l.done.err()
}

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} {
	l = l.lock()
	defer l.mu.Unlock()
	return l.done.channel()
}

// OnEnd calls f once with Err's value when the lease ends, at once if it has ended. f must not block. The returned
// function removes f.
func (l *Lease) OnEnd(f func(error)) (remove func()) {
	l = l.lock()
	defer l.mu.Unlock()
	if end := l.done.err(); end != nil {
		l.mu.afterUnlock(func() { f(end) })
		return func() {}
	}
	l.done.add(&f)
	return func() {
		l := l.lock()
		defer l.mu.Unlock()
		l.done.remove(&f)
	}
}

// current returns the lease that this one has become.
func (l *Lease) current() *Lease {
	for s := l.successor.Load(); s != nil; s = l.successor.Load() {
		l = s
	}
	return l
}

// lock returns the lease that this one has become, with its mutex locked. A conversion may come between the lookup and
// the lock, so lock checks again.
func (l *Lease) lock() *Lease {
	for {
		l = l.current()
		l.mu.Lock()
		if l.successor.Load() == nil {
			return l
		}
		l.mu.Unlock()
	}
}

// begin turns a granted acquisition into a lease, under mu.
func (l *Lease) begin(token fencing.Token, until, now clock.Instant, handedOff bool) {
	l.phase = held
	l.trust.set(until)
	if l.extra != nil {
		l.extra.shared.first = l.ballot.Votes().First(token)
	}
	// The limit counts from when this process learns of the grant, so it is never shorter than agreed.
	if limit := l.terms.MaxHold; limit > 0 {
		l.limit = now.Mono + limit
	}
	if l.block() == 0 {
		l.e.tokens.observe(token)
	}
	l.e.counters.held.Add(1)
	l.e.counters.acquired.Add(1)
	l.e.observers.acquired(l)
	// A grant from the queue, reported in any way, lasts for the hand-off TTL until it is confirmed. An answer can
	// report one too: to a request that was repeated while the hold was granted. So the time that is left decides, not
	// the way.
	handOff := l.e.drift.Trusted(now, l.terms.handoffTTL)
	l.renewal.confirm = (handedOff || l.terms.handoffTTL < l.terms.TTL) && until.Mono <= handOff.Mono
	l.renewal.handOff = l.renewal.confirm
	l.planRenewal(now)
	l.setTimer()
}

// Fire is the timer's call at the lease's next moment. The timer may be late, or early because of a call that was under
// way when it was moved, so Fire finds what is due from the clocks.
func (l *Lease) Fire(now clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	if l.phase != held {
		return
	}
	l.fireRenewal(now)
	l.setTimer()
}

// setTimer sets the timer to the lease's next moment, under mu.
func (l *Lease) setTimer() {
	l.e.timers.Set(&l.timer, l, min(l.ends(), l.nextRenewal()))
}

// expire ends the lease if its time is over, under mu, regardless of calls under way. The masters keep the hold a
// little longer, so no other client has the lock at this time.
func (l *Lease) expire(now clock.Instant) {
	if l.phase != held {
		return
	}
	deadline := l.trust.until()
	switch {
	// The cases are in the order of the reasons: a limit that was agreed on is no failure, even if something else has
	// ended too.
	case now.Mono >= l.limit:
		l.lose(l.loss(MaxHold, nil))
	case !deadline.Passed(now):
	case now.Mono < deadline.Mono:
		l.lose(l.loss(Paused, nil)) // only the wall clock has reached it
	default:
		reason, cause := l.whyExpired(now)
		l.lose(l.loss(reason, cause))
	}
}

// loss describes the end of the lease for this reason, under mu.
func (l *Lease) loss(reason Reason, cause error) *Loss {
	loss := &Loss{Name: l.name, Token: l.tokenInUse(), Reason: reason, Err: cause}
	switch {
	case reason == Taken:
		loss.by, loss.lock = l.e, l.key.Lock()
		l.e.suspect(loss.lock)
	case reason == MaxHold:
		loss.Limit = l.terms.MaxHold
	case l.renewal.handOff:
		loss.Limit, loss.HandOff = l.terms.handoffTTL, true
	default:
		loss.Limit = l.terms.TTL
	}
	return loss
}

// lose ends the lease without its holder's wish, under mu. It releases what a minority of the masters may still have:
// that is of no use, and other clients would wait for its expiry.
func (l *Lease) lose(loss *Loss) {
	l.e.counters.lost.Add(1) // first, so that a reader that sees the end sees it counted
	l.e.observers.lost(l, loss)
	l.finish(loss)
	l.releaseInBackground()
}

// LoseAt ends a held lease, because the work under it with that token has reached a limit of its own. The lease has
// ended when LoseAt returns, and is released in the background.
func (l *Lease) LoseAt(limit time.Duration, token fencing.Token) {
	l = l.lock()
	defer l.mu.Unlock()
	l.expire(l.e.clock.Now())
	if l.phase == held {
		l.lose(&Loss{Name: l.name, Token: token, Reason: MaxHold, Limit: limit})
	}
}

// finish ends a held lease, under mu. It is the only way out of that phase. Trust ends first, for readers without the
// mutex. The contexts end when the mutex is unlocked, before the caller sends any release. The caller has the registry
// forget the lease once its release is counted.
func (l *Lease) finish(end error) {
	if end == ErrReleased {
		l.e.observers.released(l)
	}
	l.phase = ended
	l.trust.end()
	l.e.counters.held.Add(-1)
	l.e.timers.Cancel(&l.timer)
	l.done.fire(end, &l.mu)
}

// shutDown ends the lease, because the engine is closed, if it is in one of these phases. Both ends leave releases to
// the background, and Close waits for them.
func (l *Lease) shutDown(in ...phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !slices.Contains(in, l.phase):
	case l.phase == asking:
		l.asking.giveUp(l.asking.failure(Closed, ErrClosed))
	case l.phase == held:
		l.finish(ErrReleased)
		l.releaseInBackground()
	}
}

// trust is a lease's deadline: the time until which a quorum of its votes is trusted. clock.Drift.Trusted counts the
// trust in each vote from before its request was sent. The deadline is written under the lease's mutex and read with or
// without it. The two clocks are stored one after the other. Until the end sets it to 0 it only moves forward, so a
// reader without the mutex that sees only the first store trusts the lease no longer than before.
type trust struct{ mono, wall atomic.Int64 } // ns; 0 if the lease does not stand

// until returns the deadline.
func (t *trust) until() clock.Instant {
	return clock.Instant{Mono: time.Duration(t.mono.Load()), Wall: time.Duration(t.wall.Load())}
}

func (t *trust) set(until clock.Instant) {
	t.mono.Store(int64(until.Mono))
	t.wall.Store(int64(until.Wall))
}

// left returns how much longer the lease is trusted.
func (t *trust) left(now clock.Instant) time.Duration { return t.until().Mono - now.Mono }

func (t *trust) end() {
	t.mono.Store(0)
	t.wall.Store(0)
}

// doneState notifies the subscribers to a lease's end. The lease's mutex guards it. Thousands of leases are held at
// once and few have subscribers, so its content is allocated with the first subscription or with the end.
type doneState struct{ end *end }

type end struct {
	err   error         // nil before the end; then ErrReleased, *Error or *Loss
	done  chan struct{} // closed at the end; made on request
	calls map[*func(error)]struct{}
}

// released is the end of every lease without subscribers that its holder has released. It never changes.
var released = func() *end {
	e := &end{err: ErrReleased, done: make(chan struct{})}
	close(e.done)
	return e
}()

// err returns nil before the end.
func (d *doneState) err() error {
	if d.end == nil {
		return nil
	}
	return d.end.err
}

// init returns the content, allocated if there was none.
func (d *doneState) init() *end {
	if d.end == nil {
		d.end = new(end)
	}
	return d.end
}

// channel returns a channel that is closed at the end. Every call returns the same channel.
func (d *doneState) channel() <-chan struct{} {
	e := d.init()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.err != nil {
			close(e.done)
		}
	}
	return e.done
}

// add registers f to be called at the end, which has not come. The pointer identifies f, since two functions cannot be
// compared.
func (d *doneState) add(f *func(error)) {
	e := d.init()
	if e.calls == nil {
		e.calls = make(map[*func(error)]struct{})
	}
	e.calls[f] = struct{}{}
}

func (d *doneState) remove(f *func(error)) {
	if d.end != nil {
		delete(d.end.calls, f)
	}
}

// fire ends the lease. The registered calls run when mu is unlocked.
func (d *doneState) fire(err error, mu *guard) {
	if d.end == nil && err == ErrReleased {
		d.end = released
		return
	}
	e := d.init()
	e.err = err
	if e.done != nil {
		close(e.done)
	}
	for f := range e.calls {
		mu.afterUnlock(func() { (*f)(err) })
	}
	e.calls = nil
}

// guard is the mutex of a lease. A call that must not run under it, such as the end of a context or a call to another
// part, is deferred until it is unlocked.
type guard struct {
	mu       sync.Mutex
	deferred *deferred // in the order of deferral
}

// deferred is one deferred call. A list takes 16 bytes less of every lease than a slice, and is seldom long.
type deferred struct {
	run  func()
	next *deferred
}

// Lock is not re-entrant. The comments of functions that are called under it say "under mu".
func (g *guard) Lock() { g.mu.Lock() }

// Unlock unlocks the mutex and then runs the deferred calls. Another goroutine may take the mutex between the two, so a
// deferred call must not rely on the state at its deferral: it carries what it needs.
func (g *guard) Unlock() {
	first := g.deferred
	g.deferred = nil
	g.mu.Unlock()
	first.runAll()
}

// runAll runs the calls from this one on.
func (d *deferred) runAll() {
	for ; d != nil; d = d.next {
		d.run()
	}
}

// afterUnlock defers f until the mutex is unlocked.
func (g *guard) afterUnlock(f func()) {
	last := &g.deferred
	for *last != nil {
		last = &(*last).next
	}
	*last = &deferred{run: f}
}

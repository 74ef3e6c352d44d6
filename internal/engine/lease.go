package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Lease is a caller's handle of the lock, from the grant to Release or loss. It stands on one hold, and a conversion
// replaces that hold by another one. The zero value is made for Engine.Acquire. All methods may be called from any
// goroutine.
type Lease struct {
	mu       guard                // guards what follows, and the holds of the lease with their acquisitions
	done     doneState            // the end of the lease, which is the end of the standing hold
	standing atomic.Pointer[hold] // written under mu
	first    hold                 // the standing hold before a conversion: one allocation with the lease
}

// lock locks the mutex and returns the standing hold, which changes only under the mutex.
func (l *Lease) lock() *hold {
	l.mu.Lock()
	return l.standing.Load()
}

// begin makes the first hold of a new lease the one that it stands on, and returns it.
func (l *Lease) begin() *hold {
	l.first.lease, l.first.done = l, &l.done
	l.standing.Store(&l.first)
	return &l.first
}

// keep reports the grant of a provisional lease, which the call keeps. It returns false if the lease has ended, or was
// never granted.
func (l *Lease) keep() bool {
	h := l.lock()
	defer l.mu.Unlock()
	if !h.stillHeld() {
		return false
	}
	h.provisional, h.unobserved = false, false
	h.e.observers.acquired(h)
	return true
}

// claim makes a hold that no caller had the caller's.
func (l *Lease) claim() {
	l.lock().unclaimed = false
	l.mu.Unlock()
}

// endUnkept returns why a lease that no caller has so far has ended, or nil. Only Close releases such a lease.
func (l *Lease) endUnkept() error {
	end := l.Err()
	if h := l.standing.Load(); end == ErrReleased {
		return &Error{Op: OpAcquire, Kind: Closed, Name: h.name, Mode: h.mode, Need: h.e.quorum(), Err: ErrClosed}
	}
	return end
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.standing.Load().name }

// Mode returns the granted mode. A joined hold has the mode of its owner's standing hold.
func (l *Lease) Mode() fencing.Mode { return l.standing.Load().mode }

// Owner returns the owner's id.
func (l *Lease) Owner() string {
	h := l.lock()
	defer l.mu.Unlock()
	return h.owner()
}

// Hold returns the id of the standing hold.
func (l *Lease) Hold() string {
	h := l.lock()
	defer l.mu.Unlock()
	return h.id
}

// Token returns the fencing token.
func (l *Lease) Token() fencing.Token {
	h := l.lock()
	defer l.mu.Unlock()
	return h.token()
}

// MaxWait returns the limit of a wait under the lease's terms, 0 for none.
func (l *Lease) MaxWait() time.Duration { return l.standing.Load().terms.MaxWait }

// Deadline returns until when the lease is trusted, by this process's clocks: the zero time where Err returns an error.
func (l *Lease) Deadline() time.Time {
	h := l.lock()
	defer l.mu.Unlock()
	now := h.e.clock.Now()
	if h.expire(now); h.phase != held {
		return time.Time{}
	}
	// The wall clock may have been set since the grant, so the moment is computed from what is left by the monotonic
	// clock.
	return time.Now().Add(h.ends() - now.Mono)
}

// Trusted reports whether the lease stands at an instant of Engine.Now, as Err does, except that it ignores MaxHold. It
// does not block and changes nothing, because the goroutines of a shared hold call it for each entry. The caller passes
// the instant, because reading the clocks is most of the cost.
func (l *Lease) Trusted(now clock.Instant) bool {
	for {
		h := l.standing.Load()
		if !h.trust.until().Passed(now) {
			return true
		}
		if h.isStanding() { // else a conversion has just replaced it
			return false
		}
	}
}

// Err returns nil while the lease is trusted, and ErrReleased or a *Loss after. It reads the clocks itself, so a
// process that was stopped learns of its loss with its first call and not when the timers fire.
func (l *Lease) Err() error {
	h := l.lock()
	defer l.mu.Unlock()
	h.expire(h.e.clock.Now())
	return l.done.err()
}

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done.channel()
}

// OnEnd calls f once with Err's value when the lease ends, at once if it has ended. f must not block. The returned
// function removes f.
func (l *Lease) OnEnd(f func(error)) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done.add(&f, &l.mu)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done.remove(&f)
	}
}

// State returns the state of the standing hold, and whether the lease has not ended.
func (l *Lease) State() (s HoldState, stands bool) {
	h := l.lock()
	defer l.mu.Unlock()
	return h.state()
}

// LoseAt ends a held lease, because the work under it with that token has reached a limit of its own. The lease has
// ended when LoseAt returns, and is released in the background.
func (l *Lease) LoseAt(limit time.Duration, token fencing.Token) {
	h := l.lock()
	defer l.mu.Unlock()
	if h.stillHeld() {
		h.lose(&Loss{Name: h.name, Token: token, Reason: MaxHold, Limit: limit})
	}
}

// doneState notifies the subscribers to the end of a lease, or of the second hold of one that converts. The lease's
// mutex guards it. Thousands of leases are held at once and few have subscribers, so its content is allocated with the
// first subscription or with the end.
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

// add has f called at the end, or when mu is unlocked if the end has come. The pointer identifies f, since two
// functions cannot be compared.
func (d *doneState) add(f *func(error), mu *guard) {
	e := d.init()
	if e.err != nil {
		mu.afterUnlock(func() { (*f)(e.err) })
		return
	}
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
	d := g.deferred
	g.deferred = nil
	g.mu.Unlock()
	if d != nil {
		d.runAll()
	}
}

// unlock unlocks the mutex, and returns the deferred calls for a caller that has another mutex to unlock first.
func (g *guard) unlock() (run func()) {
	d := g.deferred
	g.deferred = nil
	g.mu.Unlock()
	return d.runAll
}

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

package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
)

// Lease is a caller's handle of the lock, from the grant to Release or loss. It stands on one hold, and a conversion
// replaces that hold by another one. The zero value is made for Engine.Acquire. All methods may be called from any
// goroutine.
type Lease struct {
	mu       guard                  // guards what follows, and the holds of the lease with their acquisitions
	done     doneState              // the end of the lease, which is the end of the standing hold
	standing atomic.Pointer[driver] // of the hold that it stands on; written under mu
	first    driver                 // the standing one before a conversion: one allocation with the lease
}

// lock locks the mutex and returns the standing hold, which changes only under the mutex.
func (l *Lease) lock() *driver {
	l.mu.Lock()
	return l.standing.Load()
}

// begin makes the first hold of a new lease the one that it stands on, and returns it.
func (l *Lease) begin() *driver {
	l.first.lease = l
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

// claim records that the caller got the lease; from then on WithMinHold applies.
func (l *Lease) claim() {
	l.lock().step(hold.Event{Kind: hold.Claim})
	l.mu.Unlock()
}

// endUnkept returns why a lease has ended before a caller got it, or nil while it stands. If it was released, Close has
// done that.
func (l *Lease) endUnkept() error {
	end := l.Err()
	if h := l.standing.Load(); end == lockerr.ErrReleased {
		return h.closed()
	}
	return end
}

func (l *Lease) Name() string { return l.standing.Load().name }

// Mode returns the granted mode. A joined hold has the mode of its owner's standing hold.
func (l *Lease) Mode() fencing.Mode { return l.standing.Load().mode }

func (l *Lease) Owner() string {
	h := l.lock()
	defer l.mu.Unlock()
	return h.owner()
}

func (l *Lease) Hold() string {
	h := l.lock()
	defer l.mu.Unlock()
	return h.id
}

func (l *Lease) Token() fencing.Token {
	h := l.lock()
	defer l.mu.Unlock()
	return h.life.Token()
}

// MaxWait returns the limit of a wait under the lease's terms, 0 for none.
func (l *Lease) MaxWait() time.Duration { return l.standing.Load().terms.MaxWait }

// Deadline returns until when the lease is trusted, by this process's clocks: the zero time where Err returns an error.
func (l *Lease) Deadline() time.Time {
	h := l.lock()
	defer l.mu.Unlock()
	if !h.stillHeld() {
		return time.Time{}
	}
	// The wall clock may have been set since the grant, so the moment is computed from what is left by the monotonic
	// clock.
	return time.Now().Add(h.life.Ends() - h.e.clock.Now().Mono)
}

// Trusted reports whether the lease stands at an instant of Engine.Now, as Err does, except that it ignores MaxHold. It
// does not block and changes nothing, because the goroutines of a shared hold call it for each entry. The caller passes
// the instant, because reading the clocks is most of the cost.
func (l *Lease) Trusted(now clock.Instant) bool {
	for {
		h := l.standing.Load()
		if !h.life.Until().Passed(now) {
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
	h.stillHeld()
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
		loss := &hold.Loss{Reason: hold.MaxHold, Token: token, Limit: limit}
		h.step(hold.Event{Kind: hold.Lose, Loss: loss})
	}
}

// Release gives the lock back. It ignores the end of ctx, keeps its values, and waits at most the release timeout for a
// quorum to confirm. A release that is not confirmed by then continues in the background. Release returns nil for a
// lease that was released before, the *Loss of a lease that was lost, and *Error. With Terms.BackgroundRelease it posts
// the release and returns nil: what the masters answer goes to the hooks and to the logger.
func (l *Lease) Release(ctx context.Context) error {
	var few [fewEffects]hold.Effect
	h, releases, over := l.endByHolder(few[:0])
	if h == nil {
		return over
	}
	defer h.e.pending.add(-1)
	err := giveBack(ctx, false, h, nil, releases, byTerms)
	if failed, ok := err.(*lockerr.Error); ok {
		h.e.observers.warnOfRelease(h, failed)
	}
	return err
}

// ReleaseWithin is Release that waits until the end of ctx at most. It is for callers that ignore the result.
func (l *Lease) ReleaseWithin(ctx context.Context) {
	if h, releases, _ := l.endByHolder(nil); h != nil {
		defer h.e.pending.add(-1)
		_ = giveBack(ctx, true, h, nil, releases, byTerms)
	}
}

// endByHolder ends a lease that is held, counts its release as under way and returns its hold with the releases that
// are to be sent, appended to effects. Otherwise it returns what Release returns: nil if the lease was released before,
// and its *Loss each time.
func (l *Lease) endByHolder(effects []hold.Effect) (h *driver, releases []hold.Effect, over error) {
	h = l.lock()
	defer l.mu.Unlock()
	h.e.pending.add(+1) // before the registry forgets the lease, so that Close sees the lease or the release
	// The lease ends before the request leaves, so that no goroutine trusts it while another holder enters.
	before := l.done.err()
	releases = h.endBy(h.now(), hold.Release, effects)
	switch over = l.done.err(); {
	case over != lockerr.ErrReleased: // lost
	case before == nil:
		return h, releases, nil
	default:
		over = nil
	}
	h.e.pending.add(-1)
	return nil, nil, over
}

// ReleaseSoon ends a lease that is held, as Release does, and gives the lock back in the background. It is for callers
// that must not wait: a timer, or a goroutine that only unlocks. The lease has ended when ReleaseSoon returns, so
// nothing in this process relies on it while another holder enters. Releases that are not confirmed are retried until
// the hold has expired.
func (l *Lease) ReleaseSoon() { l.LetGo()() }

// LetGo is ReleaseSoon in two steps: send sends what LetGo has made, and tells who follows the end of the lease. From
// LetGo on, single attempts of this process for the lock are sent to a master after its answer to the release.
func (l *Lease) LetGo() (send func()) {
	l.lock().releaseSoon()
	return l.mu.unlock()
}

// Renew extends the lease now, or waits for the renewal that is under way. It returns nil when a quorum has confirmed,
// Err's value when the lease has ended, and *Error when the lease stands but the renewal is not confirmed, or ctx
// has ended. During a conversion Renew extends the new hold, although the TTL of that hold may have begun long before
// this call.
func (l *Lease) Renew(ctx context.Context) error {
	var cause error
	if ctx.Err() != nil { // not under mu: it is the caller's code
		cause = errs.Cause(ctx)
	}
	h := l.lock()
	if !h.stillHeld() {
		defer l.mu.Unlock()
		return l.done.err()
	}
	if cause != nil {
		defer l.mu.Unlock()
		return &lockerr.Error{Op: lockerr.OpRenew, Kind: lockerr.Undecided, Name: h.name, Err: cause}
	}
	outcome := h.awaitRound()
	h.step(hold.Event{Kind: hold.Renew})
	l.mu.Unlock()
	select {
	case err := <-outcome:
		if err == errReplaced {
			return l.Renew(ctx)
		}
		return err
	case <-ctx.Done():
		return &lockerr.Error{Op: lockerr.OpRenew, Kind: lockerr.Undecided, Name: h.name, Err: errs.Cause(ctx)}
	case <-l.Done(): // while the round is under way
		return l.Err()
	}
}

// SetTTL changes the TTL of the lease from now on, and renews it once as Renew does, with the same errors. It waits for
// a renewal under way, whose TTL is the one before. After a failure the TTL is the new one as well. 0 leaves the TTL as
// it is.
func (l *Lease) SetTTL(ctx context.Context, ttl time.Duration) error {
	for ctx.Err() == nil { // not under mu: it is the caller's code
		h := l.lock()
		if !h.stillHeld() {
			l.mu.Unlock()
			break
		}
		if !h.life.Rounds() {
			if ttl > 0 {
				h.step(hold.Event{Kind: hold.SetTTL, TTL: ttl, Sent: h.e.lastUnanswered()})
			}
			l.mu.Unlock()
			break
		}
		over := h.awaitRound()
		l.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
		case <-l.Done():
		}
	}
	return l.Renew(ctx)
}

// Block returns the tokens that the lease may use: from the first to the last, which is Token.
func (l *Lease) Block() (first, last fencing.Token) {
	h := l.lock()
	defer l.mu.Unlock()
	if h.extra == nil {
		return h.life.Token(), h.life.Token()
	}
	return h.extra.shared.first, h.life.Token()
}

// OnContended calls f once when the lease is contended, at once if it already is. f must not block. It is for a lease
// from a request that named a block: the masters report waiters to no other lease.
func (l *Lease) OnContended(f func()) {
	h := l.lock()
	defer l.mu.Unlock()
	switch x := h.extra; {
	case x == nil:
	case x.shared.contended:
		l.mu.afterUnlock(f)
	default:
		x.shared.onContended = f
	}
}

// ResetContended clears the contended state of a lease after a conversion that was given up, and asks again for
// waiters: their message may have come already, and is not sent again. It asks only when the masters have released the
// conversion. An earlier question could overtake that release, and the masters would report the conversion as a waiter.
func (l *Lease) ResetContended() {
	h := l.lock()
	defer l.mu.Unlock()
	if h.extra == nil {
		return
	}
	h.extra.shared.contended = false
	var open atomic.Int64
	open.Store(int64(len(h.e.masters)))
	l.mu.afterUnlock(func() {
		for _, releases := range h.e.releases {
			releases.Leaving.After(h.key, func() {
				if open.Add(-1) == 0 {
					h := l.lock()
					defer l.mu.Unlock()
					h.poll()
				}
			})
		}
	})
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

// released is shared by all leases without subscribers that their holders have released. It never changes.
var released = func() *end {
	e := &end{err: lockerr.ErrReleased, done: make(chan struct{})}
	close(e.done)
	return e
}()

func (d *doneState) err() error {
	if d.end == nil {
		return nil
	}
	return d.end.err
}

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
	if d.end == nil && err == lockerr.ErrReleased {
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

// guard is the mutex of a lease. The end of a context, say, runs the user's code: such a call is deferred until the
// mutex is unlocked.
type guard struct {
	mu       sync.Mutex // the comments of functions that are called under it say "under mu"
	deferred *deferred  // in the order of deferral
}

func (g *guard) Lock() { g.mu.Lock() }

// deferred is one deferred call. A list takes 16 bytes less of every lease than a slice, and is seldom long.
type deferred struct {
	run  func()
	next *deferred
}

// Unlock unlocks the mutex and then runs the deferred calls. Another goroutine may take the mutex in between, so each
// of these calls carries what it needs.
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

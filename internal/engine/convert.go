package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed74116694/fencelock/fencing"
)

// Convert takes the lock in the other mode without a gap: a new hold is granted while the old one still stands, and
// only then the old one is released. So a caller that fails or gives up keeps what it had. The entry of a reader that
// upgrades is Upgrade, to wait for the other readers to leave, or Try. The entry of a writer that downgrades is Try.
// The lease stays the same, with a new token. If goroutines of the process share the lease, alone is called between the
// grant and the exchange and returns when the other goroutines have left; otherwise alone is nil. The error is a
// *Error, also if the new hold is lost while the other goroutines leave, or the error of alone, or the end of the
// lease. The old hold is released before Convert returns, or in the background once ctx has ended or the release
// timeout is over.
func (l *Lease) Convert(
	ctx context.Context, mode fencing.Mode, entry Entry, alone func(context.Context) error,
) error {
	r, err := l.conversion(mode)
	if err != nil {
		return err
	}
	r.Entry = entry
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	remove := l.OnEnd(func(err error) { cancel(err) })
	defer remove()
	into := new(Lease)
	err = l.e.Acquire(within, into, r)
	if err == nil && alone != nil {
		into.OnEnd(func(err error) { cancel(err) })
		err = alone(within)
		if end := into.Err(); end != nil { // the error of alone would only be the end of within
			err = into.untaken(end)
		}
	}
	if err != nil {
		into.ReleaseSoon()
		if end := l.Err(); end != nil {
			return end
		}
		if f, failed := err.(*Error); failed && f.contradicts(mode) {
			if loss, lost := l.Renew(ctx).(*Loss); lost {
				return loss
			}
		}
		return err
	}
	return l.become(ctx, into)
}

// conversion returns the request for the hold in the other mode. The request names the hold that it replaces, so that a
// master does not let the two wait for each other.
func (l *Lease) conversion(mode fencing.Mode) (r Request, err error) {
	l = l.lock()
	defer l.mu.Unlock()
	if l.expire(l.e.clock.Now()); l.phase != held {
		return r, l.done.err()
	}
	r = Request{Name: l.name, Mode: mode, Terms: l.terms, Block: l.block(), From: l.id, Owner: l.namedOwner()}
	if r.Block > 0 {
		r.Seen, r.TokenInUse = l.token(), l.extra.shared.tokenInUse
		r.withdrawal = new(withdrawal)
		l.extra.shared.withdrawal = r.withdrawal
	}
	return r, nil
}

// contradicts reports whether the hold that refused a conversion to this mode excludes the hold of the lease, unless
// both have one owner. Then the lease itself may be gone, and the masters are asked.
func (e *Error) contradicts(mode fencing.Mode) bool {
	refused := e.Kind == Contended && e.Err == nil
	return refused && (mode == fencing.Read || e.Holder != nil && e.Holder.Mode == fencing.Write)
}

// untaken returns the failure of a conversion to a hold that has ended: lost, or by Close, which ends the lease too. It
// does not match the loss of that hold, because the lease keeps its former hold.
func (l *Lease) untaken(end error) *Error {
	f := &Error{Op: OpAcquire, Kind: Closed, Name: l.name, Mode: l.mode, Need: l.e.quorum(), Err: ErrClosed}
	loss, lost := end.(*Loss)
	if !lost {
		return f
	}
	f.Kind = Contended
	f.Err = fmt.Errorf("the %s hold was granted and lost before the conversion ended: %s", l.mode, loss.Reason)
	if loss.Reason == Unreachable {
		nodes, _ := loss.Err.(NodeFailures)
		f.Kind, f.Nodes, f.Got = NoQuorum, nodes, min(len(l.e.masters)-len(nodes), f.Need-1)
	}
	return f
}

// become replaces the lease by into, if the lease has stood until now. Otherwise another client may have held the lock
// in between (case upgrade-unheld of the model: a read that was not valid any more became a write, and another client
// had written in between). If into itself has ended since it was granted, the error is untaken, and l stays.
//
// Both mutexes are held during the exchange, so that every reader sees one of the two leases. No other code takes the
// mutexes of two leases, and no other goroutine knows the new lease at this point, so no order has to be kept.
func (l *Lease) become(ctx context.Context, into *Lease) error {
	e := l.e
	e.unconfirmed.add(+1) // before the registry forgets the lease, so that Close sees one of the two
	defer e.unconfirmed.add(-1)
	from := l.lock()
	if from.expire(e.clock.Now()); from.phase != held {
		defer from.mu.Unlock()
		from.mu.afterUnlock(into.ReleaseSoon)
		return from.done.err()
	}
	into.mu.Lock()
	if into.expire(e.clock.Now()); into.phase == ended { // between its grant and now
		err := into.untaken(into.done.err())
		unlockBoth(&from.mu, &into.mu)
		return err
	}
	// The subscribers to the end of the old lease now belong to the new one: the release of the old hold must not end
	// their contexts.
	stands := from.trust.until()
	into.done, into.limit, from.done = from.done, from.limit, doneState{}
	into.setTimer()
	from.successor.Store(into)
	from.finish(ErrReleased)
	e.registry.forget(from.id)
	from.abandonRound()
	unlockBoth(&from.mu, &into.mu)
	l.successor.Store(into) // skips the leases in between, so that they can be freed
	// A hold that is gone before its time, because the masters have lost it or their clocks were set, was no lock when the
	// new one was granted: another client may have written in between.
	if _, gone := from.giveBackWithin(ctx).(*Loss); gone && !stands.Passed(e.clock.Now()) {
		return l.loseTaken()
	}
	return nil
}

// unlockBoth unlocks two mutexes, and then runs what was deferred under either.
func unlockBoth(g, other *guard) {
	first, second := g.deferred, other.deferred
	g.deferred, other.deferred = nil, nil
	g.mu.Unlock()
	other.mu.Unlock()
	first.runAll()
	second.runAll()
}

// loseTaken ends a lease after the masters have shown that its old hold was gone, and returns its end.
func (l *Lease) loseTaken() error {
	l = l.lock()
	defer l.mu.Unlock()
	if l.expire(l.e.clock.Now()); l.phase == held {
		l.lose(l.loss(Taken, nil))
	}
	return l.done.err()
}

// withdrawal tracks the releases of a conversion that was given up. A master that has not answered its release may
// treat the conversion as a waiter for the lock. A nil withdrawal stands for no conversion.
type withdrawal struct {
	mu   sync.Mutex // guards what follows; no other mutex is acquired under it
	open int        // releases without an answer
	then func()     // called when open becomes 0; nil before after, and once called
}

// begin counts a release that is about to be sent.
func (w *withdrawal) begin() {
	if w != nil {
		w.mu.Lock()
		w.open++
		w.mu.Unlock()
	}
}

// end counts the answer of a release. A release that is given up has no answer: its hold has expired by then, or the
// master refuses the release for good. Then the next renewal reports waiters of other processes.
func (w *withdrawal) end() {
	if w == nil {
		return
	}
	var then func()
	w.mu.Lock()
	if w.open--; w.open == 0 {
		then, w.then = w.then, nil
	}
	w.mu.Unlock()
	if then != nil {
		then()
	}
}

// after calls f when every release that has begun is answered, or at once if there is none without an answer. It is
// called once.
func (w *withdrawal) after(f func()) {
	if w != nil {
		w.mu.Lock()
		if w.open > 0 {
			w.then = f
			f = nil
		}
		w.mu.Unlock()
	}
	if f != nil {
		f()
	}
}

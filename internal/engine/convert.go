package engine

import (
	"context"
	"fmt"

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
	remove := l.OnEnd(cancel)
	defer remove()
	into := &hold{lease: l, done: new(doneState)}
	c := converting{l, into}
	err = l.standing.Load().e.newAcquisition(within, into, r).run(within)
	if err == nil && alone != nil {
		err = c.keepUntil(within, cancel, alone)
	}
	if err != nil {
		l.mu.Lock()
		into.releaseSoon()
		l.mu.Unlock()
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
	return c.exchange(ctx)
}

// conversion returns the request for the hold in the other mode. The request names the hold that it replaces, so that a
// master does not let the two wait for each other.
func (l *Lease) conversion(mode fencing.Mode) (r Request, err error) {
	h := l.lock()
	defer l.mu.Unlock()
	if !h.stillHeld() {
		return r, l.done.err()
	}
	terms := h.terms
	if ttl := h.keeping.ttl(); ttl != terms.TTL {
		changed := *terms
		changed.TTL = ttl
		terms = changed.Prepare()
	}
	r = Request{Name: h.name, Mode: mode, Terms: terms, From: h.id}
	if x := h.extra; x != nil {
		r.Owner, r.Block, r.firstGrant = x.owner, x.shared.block, x.firstGrant
	}
	if r.Block > 0 {
		r.Seen, r.TokenInUse = h.token(), h.extra.shared.tokenInUse
	}
	return r, nil
}

// converting is a conversion of a lease whose second hold is granted.
type converting struct {
	l    *Lease
	into *hold
}

// keepUntil keeps the second hold until alone returns. The end of the hold ends ctx, by cancel.
func (c converting) keepUntil(
	ctx context.Context, cancel func(error), alone func(context.Context) error,
) error {
	h := c.into
	h.lease.mu.Lock()
	h.done.add(&cancel, &h.lease.mu)
	h.lease.mu.Unlock()
	err := alone(ctx)
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if !h.stillHeld() { // the error of alone would only be the end of ctx
		return c.untaken()
	}
	return err
}

// contradicts reports whether the hold that refused a conversion to this mode excludes the hold of the lease, unless
// both have one owner. Then the lease itself may be gone, and the masters are asked.
func (e *Error) contradicts(mode fencing.Mode) bool {
	refused := e.Kind == Contended && e.Err == nil
	return refused && (mode == fencing.Read || e.Holder != nil && e.Holder.Mode == fencing.Write)
}

// untaken returns the failure of a conversion whose second hold has ended before the exchange, under mu: lost, or by
// Close, which ends the lease too. It does not match the loss of that hold, because the lease keeps its standing hold.
func (c converting) untaken() *Error {
	h := c.into
	f := &Error{Op: OpAcquire, Kind: Closed, Name: h.name, Mode: h.mode, Need: h.e.masters.quorum(), Err: ErrClosed}
	loss, lost := h.done.err().(*Loss)
	if !lost {
		return f
	}
	f.Kind = Contended
	if loss.Reason == Broken {
		f.Err = loss.Err
		return f
	}
	f.Err = fmt.Errorf("the %s hold was granted and lost before the conversion ended: %s", h.mode, loss.Reason)
	if loss.Reason == Unreachable {
		nodes, _ := loss.Err.(NodeFailures)
		f.Kind, f.Nodes, f.Got = NoQuorum, nodes, min(len(h.e.masters)-len(nodes), f.Need-1)
	}
	return f
}

// exchange replaces the standing hold by the second one, if the standing one has stood until now. Otherwise another
// client may have held the lock in between (case upgrade-unheld of the model: a read that was not valid any more became
// a write, and another client had written in between). If the second hold itself has ended since it was granted, the
// error is untaken, and the lease keeps its hold.
func (c converting) exchange(ctx context.Context) error {
	l, e, into := c.l, c.into.e, c.into
	e.underWay.add(+1) // before the registry forgets the old hold, so that Close sees one of the two
	defer e.underWay.add(-1)
	from := l.lock()
	if !from.stillHeld() {
		defer l.mu.Unlock()
		into.releaseSoon()
		return l.done.err()
	}
	if !into.stillHeld() { // between its grant and now
		defer l.mu.Unlock()
		return c.untaken()
	}
	// The subscribers stay with the lease: the release of the old hold must not end their contexts.
	into.done, from.done = from.done, new(doneState)
	l.standing.Store(into) // before the end of the trust in the old hold, for readers without the mutex
	now := e.clock.Now()
	if ttl := from.keeping.ttl(); ttl != into.keeping.ttl() {
		// It was set during the conversion.
		into.keeping.changeTTL(ttl, now)
	}
	if from.extra != nil && into.extra != nil { // the limit is that of the lease
		into.extra.limit = from.extra.limit
	}
	into.setTimer(now)
	stands := from.trust.until()
	from.finish(ErrReleased)
	from.replaced = true
	e.registry.forget(from.id)
	from.keeping.endRound(errReplaced)
	l.mu.Unlock()
	_, gone := giveBack(ctx, ctx.Done(), from, into, awaited).(*Loss)
	h := l.lock()
	defer l.mu.Unlock()
	switch {
	case !h.stillHeld(): // it was lost while the release had no answer
	case gone && !stands.Passed(e.clock.Now()):
		// A hold that is gone before its time, because the masters have lost it or their clocks were set, was no lock when
		// the new one was granted: another client may have written in between.
		h.lose(h.loss(Taken, nil))
	default:
		return nil
	}
	return l.done.err()
}

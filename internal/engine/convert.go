package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// Convert takes the lock in the other mode, without a gap: another hold is granted beside the one that there is, and
// only then that one is given back. So whoever fails, or gives up, has what it had. The entry of a reader that upgrades
// is Upgrade, to wait for the other readers to leave, or Try; that of a writer that downgrades is Try. The lease is the
// same, with a new token. Where goroutines of the process share the lease, alone returns when the others have left, and
// is asked between the grant and the exchange; else it is nil. The error is a *Failure, also where the new hold is lost
// while the others leave, or that of alone, or the end of the lease. The hold that is replaced is released before it
// returns, or in the background once ctx has ended or the release timeout is over.
func (e *Engine) Convert(
	ctx context.Context, l *Lease, mode fencing.Mode, entry Entry, alone func(context.Context) error,
) error {
	r, err := conversion(l, mode)
	if err != nil {
		return err
	}
	r.Entry = entry
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	remove := l.OnEnd(func(err error) { cancel(err) })
	defer remove()
	into := new(Lease)
	err = e.Acquire(within, into, r)
	if err == nil && alone != nil {
		into.OnEnd(func(err error) { cancel(err) })
		err = alone(within)
		if end := into.Err(); end != nil { // what alone says of that is the end of within
			err = untaken(into, end)
		}
	}
	if err != nil {
		e.ReleaseSoon(into)
		if end := l.Err(); end != nil {
			return end
		}
		return err
	}
	return e.become(ctx, l, into)
}

// Untaken is why a conversion failed whose new hold was lost before the lease went over to it. It is no loss: the lease
// has what it had.
type Untaken struct {
	Mode   fencing.Mode
	Reason Reason
}

func (u *Untaken) Error() string {
	return fmt.Sprintf("the %s hold was granted, and lost before it was taken: %v", u.Mode, u.Reason)
}

// untaken is the failure of a conversion to a hold that has ended: lost, or by Close, which ends the lease too.
func untaken(l *Lease, end error) *Failure {
	f := &Failure{Kind: Closed, Name: l.name, Mode: l.mode, Need: l.e.quorum(), Err: ErrClosed}
	loss, lost := end.(*Loss)
	if !lost {
		return f
	}
	f.Kind, f.Err = Contended, &Untaken{l.mode, loss.Reason}
	if loss.Reason == Unreachable {
		nodes, _ := loss.Err.(NodeFailures)
		f.Kind, f.Nodes, f.Got = NoQuorum, nodes, min(len(l.e.masters)-len(nodes), f.Need-1)
	}
	return f
}

// conversion returns the request for the hold in the other mode. It names the hold that it takes the place of, so that
// a master does not let the two wait for each other.
func conversion(l *Lease, mode fencing.Mode) (r Request, err error) {
	l = l.lock()
	defer l.mu.Unlock()
	if l.expire(l.e.clock.Now()); l.phase != held {
		return r, l.ending.err()
	}
	r = Request{Name: l.name, Mode: mode, Terms: l.terms, Block: l.block(), From: l.id, Owner: l.namedOwner()}
	if r.Block > 0 {
		r.Seen = l.token()
		r.withdrawal = new(withdrawal)
		l.extra.cohort.last = r.withdrawal
	}
	return r, nil
}

// become puts a lease in the place of another, if that one has stood until now: else somebody may have been between
// (case upgrade-unheld of the model: a read that was not valid any more became a write, and another had written in
// between). One that has ended itself since it was granted is untaken, and the other stays.
//
// Both mutexes are held while the one takes the place of the other, so that nobody sees neither. No other place takes
// two leases' mutexes, and nobody else knows of the new lease yet, so there is no order to keep.
func (e *Engine) become(ctx context.Context, l, into *Lease) error {
	e.unconfirmed.add(+1) // before the registry forgets the lease, so that Close sees the one or the other
	defer e.unconfirmed.add(-1)
	from := l.lock()
	if from.expire(e.clock.Now()); from.phase != held {
		defer from.mu.Unlock()
		from.mu.afterUnlock(func() { e.ReleaseSoon(into) })
		return from.ending.err()
	}
	into.mu.Lock()
	if into.expire(e.clock.Now()); into.phase == ended { // in the moment since it was granted
		err := untaken(into, into.ending.err())
		unlockBoth(&from.mu, &into.mu)
		return err
	}
	// Those who asked for the old one's end are the new one's now: the release of the old hold must not end their
	// contexts.
	into.ending, into.limit, from.ending = from.ending, from.limit, ending{}
	into.setTimer()
	from.successor.Store(into)
	from.finish(ErrReleased)
	e.registry.forget(from.id)
	from.renewal.abandon()
	unlockBoth(&from.mu, &into.mu)
	l.successor.Store(into) // past those in between, which may go
	from.giveBackWithin(ctx)
	return nil
}

// current returns the lease that this one has become.
func (l *Lease) current() *Lease {
	for s := l.successor.Load(); s != nil; s = l.successor.Load() {
		l = s
	}
	return l
}

// lock returns the lease that this one has become, with its mutex taken. A conversion may come between finding the
// lease and taking its mutex, so it looks again.
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

// MaxWait is the limit of the waiting under the terms of a lease, 0 for none.
func MaxWait(l *Lease) time.Duration { return l.terms.MaxWait }

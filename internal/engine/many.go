package engine

import (
	"cmp"
	"context"
	"errors"

	"github.com/seed74116694/fencelock/internal/ctxend"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// MultiLock has the requests for several locks, of which the caller needs all or none. Their entry is Wait or Try, the
// same for all.
//
// The requests are in the order in which all callers wait for these locks, each lock once. No acquisition waits for a
// lock while it holds one that comes later, so acquisitions of several locks never wait for each other in a circle.
type MultiLock struct {
	Requests []Request
	Lease    func(i int) *Lease      // makes the lease of a request: a new one for each of its attempts
	MayWait  func(name string) error // called before each wait: reports why the caller must not wait for this lock
	Accept   func() error            // called when the call has all locks: reports why the caller must not have them
}

// ErrAgain is an error of MayWait and Accept after which the caller repeats the call. No failure is reported.
var ErrAgain = errors.New("the caller asks again")

// Acquire asks for all the locks together, in one batch for each server, and returns when it has all of them. If
// some are not free, it keeps the locks before the first of these, gives back what it has taken behind, waits for that
// first one, and asks for the rest again. A lock that is lost meanwhile ends the call with its *Loss. On failure
// nothing is kept: what the call has is released in the background.
//
// The hooks and the counters learn of each lock once, when the call keeps it or has failed: the attempts that are given
// back are not reported.
func (m MultiLock) Acquire(ctx context.Context, e *Engine) error {
	c := &multiLockCall{MultiLock: m, e: e}
	complete := false
	defer func() { // also if a method of ctx panics
		if !complete {
			for _, l := range c.kept {
				l.ReleaseSoon()
			}
		}
	}()
	err := c.acquire(ctx)
	if err == nil {
		err = c.Accept()
	}
	if complete = err == nil; complete {
		for _, l := range c.kept {
			l.claim()
		}
	} else if err != ErrAgain {
		c.report(ctx, err)
	}
	return err
}

// multiLockCall is one call of Acquire.
type multiLockCall struct {
	MultiLock
	e    *Engine
	kept []*Lease // of the first requests
	over int      // requests behind these whose failure is reported: 1 after a wait that failed, else 0
}

// report reports the failure of the call for each lock that it has neither kept nor waited for in vain.
func (c *multiLockCall) report(ctx context.Context, failure error) {
	for i := len(c.kept) + c.over; i < len(c.Requests); i++ {
		c.begin(ctx, i, c.Requests[i]).report(failure)
	}
}

// begin makes an acquisition. Its hold is claimed once the call has all locks.
func (c *multiLockCall) begin(ctx context.Context, i int, r Request) *acquisition {
	a := newAcquisition(ctx, c.e, c.Lease(i).begin(), r)
	a.hold.step(hold.Event{Kind: hold.Disclaim})
	return a
}

func (c *multiLockCall) acquire(ctx context.Context) error {
	single := c.Requests[0].Entry == Try
	for len(c.kept) < len(c.Requests) {
		// The last lock is waited for at once, if that is allowed: there is nothing behind it to ask for meanwhile.
		next := len(c.kept)
		if single || next < len(c.Requests)-1 || c.MayWait(c.Requests[next].Name) != nil {
			refused, forGood := c.try(ctx)
			switch {
			case refused == nil:
				continue
			case single || forGood:
				return refused
			}
		}
		if err := c.wait(ctx); err != nil {
			return cmp.Or(c.end(), err)
		}
	}
	return c.end()
}

// end returns why one of the kept leases has ended, or nil.
func (c *multiLockCall) end() error {
	for _, l := range c.kept {
		if end := l.endUnkept(); end != nil {
			return end
		}
	}
	return nil
}

// wait waits for the first lock that the call does not have. The loss of a lock before it ends the wait.
func (c *multiLockCall) wait(ctx context.Context) error {
	i := len(c.kept)
	if err := c.MayWait(c.Requests[i].Name); err != nil {
		return err
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := func(end error) { ctxend.Cancel(cancel, end) }
	for _, l := range c.kept {
		defer l.OnEnd(over)()
	}
	a := c.begin(within, i, c.Requests[i])
	if err := a.run(within); err != nil {
		c.over = 1
		return err
	}
	c.kept = append(c.kept, a.hold.lease)
	return nil
}

// try makes a single attempt for each lock that the call does not have, and keeps the granted ones before the first
// that was refused; all or none if the caller makes no other attempt. refused is that refusal, or nil if all are kept.
// forGood reports that a wait would fail as well.
func (c *multiLockCall) try(ctx context.Context) (refused error, forGood bool) {
	first := len(c.kept)
	attempts := make([]*acquisition, 0, len(c.Requests)-first)
	over := false
	defer func() {
		if !over {
			for _, a := range attempts {
				a.abandon()
			}
		}
	}()
	for i, r := range c.Requests[first:] {
		r.Entry = Try
		a := c.begin(ctx, first+i, r)
		a.hold.provisional = true
		if failed := a.admit(ctx); failed != nil {
			return failed, true
		}
		attempts = append(attempts, a)
	}
	if c.Requests[0].Entry == Try {
		if failed := c.refused(attempts[0]); failed != nil {
			return failed, true
		}
	}
	c.ask(attempts)
	await(ctx, attempts...)
	over = true
	return c.settle(ctx, attempts)
}

// refused returns the failure of single attempts at a single master that has just failed to answer, or nil. Otherwise
// they would wait in the pipeline until the master is tried again.
func (c *multiLockCall) refused(a *acquisition) error {
	h := a.hold
	if len(c.e.masters) > 1 {
		return nil
	}
	cause := c.e.masters[0].At(h.key).Refuses(c.e.clock.Now().Mono)
	if cause == nil {
		return nil
	}
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	var one [1]hold.Effect
	h.life.Step(h.now(), hold.Event{Kind: hold.Begin}, one[:0])
	h.step(hold.Event{Kind: hold.Answered, Answer: c.e.noAnswer(c.e.masters[0], cause)})
	return a.failed
}

// settle keeps what try says and gives the other locks back.
func (c *multiLockCall) settle(ctx context.Context, attempts []*acquisition) (refused error, forGood bool) {
	for _, a := range attempts {
		failed := cmp.Or(a.outcome(), a.hold.lease.endUnkept()) // granted, and over since
		named := holderOf(failed) != nil && refusedWithoutHolder(refused)
		if final := isFinal(ctx, failed); failed != nil && (refused == nil || !forGood && (final || named)) {
			refused, forGood = failed, final
		}
	}
	keeps := refused == nil || c.Requests[0].Entry != Try
	for _, a := range attempts {
		l := a.hold.lease
		if keeps = keeps && l.keep(); keeps {
			c.kept = append(c.kept, l)
			continue
		}
		if refused == nil { // granted, and over since
			refused = l.endUnkept()
		}
		l.ReleaseSoon()
	}
	return refused, forGood
}

func holderOf(failed error) *wire.Holder {
	if e, ok := failed.(*lockerr.Error); ok {
		return e.Holder
	}
	return nil
}

// refusedWithoutHolder reports whether a server may have refused this lock for the sake of another one of the call.
func refusedWithoutHolder(failed error) bool {
	e, ok := failed.(*lockerr.Error)
	return ok && e.Kind == lockerr.Contended && e.Holder == nil
}

// isFinal reports whether a failed attempt says that a wait for the lock would fail too: ctx has ended, the engine is
// closed, the masters are of no use, a key holds something else, or an operator has broken the hold.
func isFinal(ctx context.Context, failed error) bool {
	if errors.As(failed, new(*wire.Breaker)) {
		return true
	}
	e, ok := failed.(*lockerr.Error)
	if !ok {
		return false
	}
	switch e.Kind {
	case lockerr.Conflict, lockerr.Closed, lockerr.InvalidMasters:
		return true
	default:
		return e.Err != nil && ctx.Err() != nil
	}
}

// ask sends the requests of all attempts, those to one server together. The requests to every master are made before
// the first one leaves: a later one would be a request of an attempt that may have ended.
//
// A single server takes nothing that would have to be given back, where it can tell. The lock of another writer is
// refused with its holder then, and without one what is not taken for its sake.
func (c *multiLockCall) ask(attempts []*acquisition) {
	set := &transport.AllOrNone{Before: c.Requests[0].Entry != Try}
	e, asked := c.e, make(chan struct{}, 1)
	proposal, calls := e.tokens.ProposalAfter(0), make([][]transport.Call, len(e.masters))
	for _, a := range attempts {
		a.asked, a.proposal = asked, proposal
		h := a.hold
		h.lease.mu.Lock()
		if a.hold.acquisition == nil { // Close was called in between
			h.lease.mu.Unlock()
			continue
		}
		var few [fewEffects]hold.Effect
		for _, f := range h.life.Step(h.now(), hold.Event{Kind: hold.Begin}, few[:0]) {
			call := a.call(e.masters[f.Master], true)
			if len(e.masters) == 1 {
				call.AllOrNone = set
			}
			calls[f.Master] = append(calls[f.Master], call)
		}
		h.lease.mu.Unlock()
	}
	for i, m := range e.masters {
		m.PostAll(calls[i])
	}
}

package engine

import (
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/transport"
)

// report counts and reports the failure, which is the end of the acquisition, under mu or before the hold is
// registered. The caller of a provisional hold goes on, and so does the caller of a join that was for no hold in
// particular.
func (a *acquisition) report(failure error) {
	f, _ := failure.(*Error)
	if a.hold.provisional || f != nil && f.Kind == Absent && a.claimed == 0 {
		return
	}
	a.hold.e.counters.failed(failure)
	a.hold.e.observers.offer(OnFailed, a.hold, failure, 0)
}

// giveUp ends asking with a failure, under mu, and releases what the masters have. This includes a master that has not
// answered: its request may still run. Its release leaves a tombstone, so that the request finds that it came too late
// (case overtake of the model: without the tombstone the master would grant a hold that has no holder).
func (a *acquisition) giveUp(f *Error) {
	h := a.hold
	a.leave()
	a.report(f) // while the hold is asking: it has no token
	a.failed, h.phase = f, ended
	h.done.fire(f, &h.lease.mu)
	a.withdraw(nil)
}

// withdraw releases what the masters may have of the hold, under mu. The releases of waiters may be many, so they are
// sent together. Those of other attempts are sent at once, since one that starts again waits for the answers itself.
func (a *acquisition) withdraw(heir *hold) {
	if h := a.hold; a.entry == Wait || !h.ballot.Votes().MayBeHeld() {
		giveTogether(h, heir)
	} else {
		giveAtOnce(h, heir)
	}
}

// waitFailure returns the kind of the failure when ctx ends, under mu: Contended if other clients have the lock, and
// NoQuorum if the lock could not be asked for, by the votes at this moment. If too many masters refused the former
// hold, as they do where their clocks disagree, the current hold may wait for nothing but the release of the former
// one. Then another client has the lock only if a master has named its hold.
func (a *acquisition) waitFailure() Kind {
	if a.seat != nil && a.asks == 0 { // others of this process, which ask for it, are before it
		if a.cutOff() {
			return NoQuorum
		}
		return Contended
	}
	refused := 0
	for _, err := range a.errs {
		if err != nil {
			refused++
		}
	}
	if e := a.hold.e; a.holder == nil && refused > len(e.masters)-e.masters.quorum() {
		return NoQuorum
	}
	return Kind(a.hold.ballot.Votes().WaitFailure())
}

// cutOff reports whether the servers of so many masters fail or refuse that no quorum can serve this acquisition.
func (a *acquisition) cutOff() bool {
	h, now := a.hold, a.hold.e.clock.Now().Mono
	return h.e.masters.lost(func(m *transport.Master) bool {
		return m.At(h.key).Failing() || h.e.waiters[m.Index].refused(h.name, now) >= refusalLasts
	})
}

// failure describes why no lease came about, under mu. It names every master that gave a cause and every master that
// had not answered when ctx ended. Unknown reports that a request may still run. Its release then goes on in the
// background.
func (a *acquisition) failure(kind Kind, cause error) *Error {
	h := a.hold
	waited := h.e.clock.Now().Mono - h.begun
	f := &Error{
		Op: OpAcquire, Kind: kind, Name: h.name, Mode: h.mode, Attempts: a.asks, Waited: waited, Holder: a.holder, Err: cause,
		Claimed: a.claimed, Need: h.ballot.Votes().Quorum(),
		Own: cause != nil && a.holder != nil && h.e.registry.lookup(a.holder.Hold) != nil,
	}
	for i, m := range h.e.masters {
		v := h.ballot.Vote(i)
		failed := func(err error) {
			f.Nodes = append(f.Nodes, failureOf(m, h.key, err))
		}
		f.Unknown = f.Unknown || v.Unanswered()
		// The master's error for the former hold is used if it has not answered for this one, has granted this one too
		// with another token than the other masters, or may only have it wait for the former one.
		disagrees := kind == NoQuorum && (v.State == ballot.Granted || v.State == ballot.Queued)
		if v.Err == nil && (v.State == ballot.Unasked || v.State == ballot.Asked || disagrees) && a.errs != nil {
			v.Err = a.errs[i]
		}
		switch {
		case v.Err != nil:
			failed(v.Err)
		case cause != nil && v.State == ballot.Asked:
			failed(&transport.NoReply{After: waited})
		}
	}
	f.Got = h.ballot.Votes().Answers()
	if kind == NoQuorum { // too many of the answers are grants that came too late, or with another token
		f.Got = min(f.Got, f.Need-1)
	}
	return f
}

// failed counts a failure by its kind. What is no *Error counts as refused.
func (c *counters) failed(failure error) {
	kind := InvalidMasters
	if f, ok := failure.(*Error); ok {
		kind = f.Kind
	}
	switch f := &c.failures; kind {
	case Contended:
		f.contended.Add(1)
	case NoQuorum:
		f.noQuorum.Add(1)
	case Closed:
		f.closed.Add(1)
	default:
		f.refused.Add(1)
	}
}

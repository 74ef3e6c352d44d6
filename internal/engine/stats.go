package engine

import (
	"slices"
	"sync/atomic"
)

// Stats counts what an Engine has done, and what it has now.
type Stats struct {
	Held          int
	Waiting       int
	Unreachable   int // waiting acquisitions that no quorum answers
	NoMessages    int // waiting acquisitions that ask at an interval, because messages are not available
	Acquired      uint64
	Contended     uint64
	HandedOff     uint64
	Adopted       uint64
	Detached      uint64
	Failed        Failures
	Lost          map[Reason]uint64 // Expired too
	Unconfirmed   uint64            // calls of Release without the confirmation of a quorum
	Renewed       uint64
	RenewFailed   uint64
	EventsDropped uint64
}

// Failures counts acquisitions that have failed, by their cause.
type Failures struct{ Contended, NoQuorum, Closed, Refused uint64 }

// counters are updated at the event, under the mutex of its lease or without one. Each counter is exact by itself. Two
// counters that are read one after the other may belong to different moments.
type counters struct {
	held, waiting                                                     atomic.Int64
	acquired, contended, handedOff, renewed, renewFailed, unconfirmed atomic.Uint64
	adopted, detached                                                 atomic.Uint64

	failures struct{ contended, noQuorum, closed, refused atomic.Uint64 }
	losses   [len(reasons)]atomic.Uint64 // of each of reasons
}

var reasons = [...]Reason{Expired, Taken, Unreachable, Paused, MaxHold, Broken}

func (c *counters) lost(reason Reason) { c.losses[slices.Index(reasons[:], reason)].Add(1) }

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	c := &e.counters
	s := Stats{
		Held: int(c.held.Load()), Waiting: int(c.waiting.Load()),
		Acquired: c.acquired.Load(), Contended: c.contended.Load(), HandedOff: c.handedOff.Load(),
		Adopted: c.adopted.Load(), Detached: c.detached.Load(),
		Lost: make(map[Reason]uint64, len(reasons)), Unconfirmed: c.unconfirmed.Load(),
		Renewed: c.renewed.Load(), RenewFailed: c.renewFailed.Load(),
		EventsDropped: e.observers.relay.Dropped(),
	}
	f := &c.failures
	s.Failed = Failures{f.contended.Load(), f.noQuorum.Load(), f.closed.Load(), f.refused.Load()}
	for i, reason := range reasons {
		s.Lost[reason] = c.losses[i].Load()
	}
	if s.Waiting == 0 {
		return s
	}
	for h := range e.registry.each() {
		h.lease.mu.Lock()
		a := h.asking
		if a != nil && a.waiting && a.cutOff() {
			s.Unreachable++
		}
		if a != nil && a.waiting && e.masters.subscriptionDown(h.key.LockHash()) {
			s.NoMessages++
		}
		h.lease.mu.Unlock()
	}
	return s
}

package engine

import (
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
	Lost          uint64
	Renewed       uint64
	RenewFailed   uint64
	EventsDropped uint64
}

// counters are updated at the event, under the mutex of its lease or without one. Each counter is exact by itself. Two
// counters that are read one after the other may belong to different moments.
type counters struct {
	held, waiting                                              atomic.Int64
	acquired, contended, handedOff, lost, renewed, renewFailed atomic.Uint64
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	c := &e.counters
	s := Stats{
		Held: int(c.held.Load()), Waiting: int(c.waiting.Load()),
		Acquired: c.acquired.Load(), Contended: c.contended.Load(), HandedOff: c.handedOff.Load(),
		Lost: c.lost.Load(), Renewed: c.renewed.Load(), RenewFailed: c.renewFailed.Load(),
		EventsDropped: e.observers.relay.Dropped(),
	}
	waiting := make(map[*acquisition]struct{})
	for _, w := range e.waiters { // not every master has every waiter
		for _, a := range w.all() {
			waiting[a] = struct{}{}
		}
	}
	for a := range waiting {
		if e.cutOff(a) {
			s.Unreachable++
		}
		if e.subscriptionDown(a.hold.key.LockHash()) {
			s.NoMessages++
		}
	}
	return s
}

package engine

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// HoldState is one hold of this process at one moment.
type HoldState struct {
	Name, Owner, Hold, Meta string
	Mode                    fencing.Mode
	Token                   fencing.Token // 0 before the grant
	Shared                  bool          // goroutines share it: see Request.Block
	Converts                bool          // the second hold of a lease, before the exchange
	Asking                  bool          // not granted so far, or not to a caller: see group
	Age                     time.Duration // since the grant; while it asks, since the acquisition began
	Left                    time.Duration // how much longer it is trusted, if it is granted
	RenewalLate             bool          // less than half of its time is left, although it is renewed
	Failure                 error         // why its renewal is late, as far as that is known
	Holder                  *Holder       // while it asks: a holder in the way, as last seen
	Unreachable             bool          // while it asks: no quorum answers
}

// Holds returns the holds of this process one after the other, in no order. Each is as it is when it is reached, and no
// mutex is held while the loop's body runs. A hold that begins, ends or restarts during the loop may be missing.
func (e *Engine) Holds() iter.Seq[HoldState] {
	return func(yield func(HoldState) bool) {
		for h := range e.registry.each {
			h.lease.mu.Lock()
			s, stands := h.state()
			h.lease.mu.Unlock()
			if stands && !yield(s) {
				return
			}
		}
	}
}

// LostLease is the end of a hold without its holder's wish.
type LostLease struct {
	Event
	Meta string
	At   time.Time
	Loss *Loss
}

// keptLosses is how many losses an engine remembers.
const keptLosses = 64

// losses are the last losses of an engine. Its mutex is acquired under a lease's mutex, and no other under it.
type losses struct {
	mu   sync.Mutex
	kept []LostLease // at most keptLosses, the oldest first
}

// add records the loss of a hold, under the hold's mu.
func (l *losses) add(h *hold, loss *Loss) {
	lost := LostLease{Event: h.event(), Meta: h.terms.Meta, At: time.Now(), Loss: loss}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept[max(len(l.kept)-keptLosses+1, 0):], lost)
}

// Losses returns the last losses, the oldest first.
func (e *Engine) Losses() []LostLease {
	l := &e.losses
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.kept)
}

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
	for h := range e.registry.each {
		h.lease.mu.Lock()
		a := h.asking
		if a != nil && a.waiting && a.cutOff() {
			s.Unreachable++
		}
		if a != nil && a.waiting && e.masters.subscriptionDown(h.key) {
			s.NoMessages++
		}
		h.lease.mu.Unlock()
	}
	return s
}

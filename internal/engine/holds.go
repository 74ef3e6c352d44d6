package engine

import (
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
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
		for h := range e.registry.each() {
			h.lease.mu.Lock()
			s, stands := h.state()
			h.lease.mu.Unlock()
			if stands && !yield(s) {
				return
			}
		}
	}
}

// State returns the state of the standing hold, and whether the lease has not ended.
func (l *Lease) State() (s HoldState, stands bool) {
	h := l.lock()
	defer l.mu.Unlock()
	return h.state()
}

// state returns what Holds shows of the hold, and whether it has not ended, under mu.
func (h *hold) state() (s HoldState, stands bool) {
	now := h.e.clock.Now()
	if h.expire(now); h.phase == ended {
		return s, false
	}
	s = HoldState{
		Name: h.name, Owner: h.owner(), Hold: h.id, Meta: h.terms.Meta, Mode: h.mode, Token: h.token(),
		Shared: h.block() > 0, Converts: !h.isStanding(),
	}
	if h.phase == asking || h.provisional {
		s.Asking, s.Token, s.Age = true, 0, now.Mono-h.begun
		if h.asking != nil {
			s.Holder, s.Unreachable = h.asking.holder, h.e.cutOff(h.asking)
		}
		return s, true
	}
	waited := time.Duration(h.waited) * time.Millisecond
	s.Age, s.Left = now.Mono-h.begun-waited, h.ends()-now.Mono
	trusted := h.keeping.ttl()
	if h.keeping.handOff {
		trusted = h.terms.handoffTTL
	}
	if s.RenewalLate = h.keeping.due != clock.Never && h.trust.left(now) < trusted/2; s.RenewalLate {
		s.Failure = h.keeping.failure
	}
	return s, true
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
	kept []LostLease // at most keptLosses, in the order of the losses, from next on
	next int
}

// add records the loss of a hold, under the hold's mu.
func (l *losses) add(h *hold, loss *Loss) {
	lost := LostLease{Event: h.event(), Meta: h.terms.Meta, At: time.Now(), Loss: loss}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) < keptLosses {
		l.kept = append(l.kept, lost)
		return
	}
	l.kept[l.next] = lost
	l.next = (l.next + 1) % keptLosses
}

// Losses returns the last losses, the oldest first.
func (e *Engine) Losses() []LostLease {
	l := &e.losses
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.kept[l.next:], l.kept[:l.next])
}

package engine

import (
	"iter"
	"slices"
	"sync"
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

package engine

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

type (
	// Holder is one granted hold as a master reports it.
	Holder = wire.Holder
	// Waiter is one queued hold as a master shows it.
	Waiter = wire.Waiter
)

// View is a lock as one master shows it.
type View struct {
	Index   int
	Addr    string
	Token   fencing.Token
	Holders []Holder
	Waiters []Waiter
	Err     error
}

// Inspect asks every master for the state of the lock, and changes nothing. Each view is of one master only: a lock
// that one of several masters shows as held may have no holder, if no quorum shows the same. open is false after Close.
func (e *Engine) Inspect(ctx context.Context, name string) (all []View, open bool) {
	if e.registry.isClosed() {
		return nil, false
	}
	k := e.keys.All(e.keys.Of(name))
	views := make(chan View, len(e.masters))
	for _, m := range e.masters {
		ask := func() {
			bounded, cancel := context.WithTimeout(ctx, e.cfg.ReleaseTimeout)
			defer cancel()
			r, sent := m.Do(bounded, e.scriptsOf(m).inspect, k.OfLock(), wire.Vote{}, nil)
			reply, err := wire.ReadInspect(r)
			// The time limit is this package's or the caller's. In both cases the master did not answer within it.
			if err != nil && bounded.Err() != nil {
				err = &transport.NoReply{After: e.clock.Now().Mono - sent.Mono}
			}
			views <- View{
				Index: m.Index, Addr: m.At(k[0]).Addr(), Token: reply.Token, Holders: reply.Holders, Waiters: reply.Waiters,
				Err: m.Explain(err),
			}
		}
		// The locker was closed in between. The masters that were asked answer into a channel that has room for all.
		if !e.tasks.spawn(ask) {
			return nil, false
		}
	}
	all = make([]View, len(e.masters))
	for range e.masters {
		v := <-views
		all[v.Index] = v
	}
	return all, true
}

// HoldState is one hold of this process at one moment.
type HoldState struct {
	Name, Owner, Hold, Meta string
	Mode                    fencing.Mode
	Token                   fencing.Token // 0 before the grant
	Shared                  bool          // goroutines share it: see Request.Block
	Converts                bool          // the second hold of a lease, before the exchange
	Asking                  bool          // not granted so far
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
	if h.phase == asking {
		s.Asking, s.Age = true, now.Mono-h.begun
		s.Holder, s.Unreachable = h.asking.holder, h.e.cutOff(h.asking)
		return s, true
	}
	waited := time.Duration(h.waited) * time.Millisecond
	s.Age, s.Left = now.Mono-h.begun-waited, h.ends()-now.Mono
	trusted := h.terms.TTL
	if h.renewal.handOff {
		trusted = h.terms.handoffTTL
	}
	if s.RenewalLate = h.needsRenewal() && h.trust.left(now) < trusted/2; s.RenewalLate {
		s.Failure = h.renewal.failure
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

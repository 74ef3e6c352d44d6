package rwlock

import (
	"context"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
)

// Holder is one granted hold.
type Holder struct {
	Owner, Hold string        // ULIDs; the same where no owner was named
	Meta        string        // of WithMeta, as the holder gave it: not to be printed raw
	Mode        Mode          // Read or Write
	Count       int           // acquisitions of the owner that share it; of this process's RWMutex, goroutines in it
	Cohort      bool          // of an RWMutex: the goroutines of a process share it
	Lingering   bool          // of an RWMutex of this locker: WithLinger keeps it, and nobody is in
	Remaining   time.Duration // until the master lets go of it, unless it is renewed
	Held        time.Duration // since the grant
}

// Waiter is one queued acquisition.
type Waiter struct {
	Owner, Hold string // as a Holder's
	Meta        string
	Mode        Mode
	Waited      time.Duration // since it was queued
}

// MasterState is how one master shows a lock.
type MasterState struct {
	Index   int // in the order given to New
	Addr    string
	Token   fencing.Token
	Holders []Holder
	Waiters []Waiter
	Err     error // why this master showed nothing
}

// State is a snapshot of one lock. Its Holders and Waiters are those that a quorum of the masters shows, its Token is
// the largest of any master: where an RWMutex has the lock, the last that its sections may use under this lease.
type State struct {
	Name    string
	Mode    Mode // 0 where nobody holds it
	Token   fencing.Token
	Holders []Holder
	Waiters []Waiter // in the order in which they will be served
	Masters []MasterState
}

// Inspect returns who holds a lock and who waits for it. It changes nothing and is meant for people: between masters
// and between its reading and yours things move. Each master is given the release timeout, or what ctx leaves. The
// error is a *QuorumError when too few masters answered; the state then has what there is. After Close it is ErrClosed.
func (l *Locker) Inspect(ctx context.Context, name string) (State, error) {
	if l.isZero() {
		return State{}, errZeroLocker
	}
	if err := checkName(name); err != nil {
		return State{}, err
	}
	views, open := l.engine.Inspect(ctx, name)
	if !open {
		return State{}, ErrClosed
	}
	s := State{Name: name}
	failed := &QuorumError{Name: name, Need: len(views)/2 + 1, Err: ctx.Err()}
	holders, waiters := newPoll[Holder](failed.Need), newPoll[Waiter](failed.Need)
	for _, v := range views {
		s.Masters = append(s.Masters, masterState(v))
		if v.Err != nil {
			failed.Nodes = append(failed.Nodes, NodeError{Index: v.Index, Addr: v.Addr, Err: nodeCause(v.Err)})
			continue
		}
		failed.Got++
		// The newest token of any master is at least that of every grant that a quorum has made.
		s.Token = max(s.Token, v.Token)
		for _, h := range v.Holders {
			holders.vote(h.Hold, holder(h))
		}
		for _, w := range v.Waiters {
			waiters.vote(w.Hold, Waiter(w))
		}
	}
	s.Holders, s.Waiters = holders.elected, waiters.elected
	if m := l.mutexes.used(name); m != nil {
		m.showIn(s.Holders)
	}
	if len(s.Holders) > 0 {
		s.Mode = s.Holders[0].Mode
	}
	if failed.Got < failed.Need {
		return s, failed
	}
	return s, nil
}

// masterState shows a master as it is, whatever the others say: whoever looks for a fault wants to see them differ.
func masterState(v engine.View) MasterState {
	m := MasterState{Index: v.Index, Addr: v.Addr, Token: v.Token, Err: nodeCause(v.Err)}
	for _, h := range v.Holders {
		m.Holders = append(m.Holders, holder(h))
	}
	for _, w := range v.Waiters {
		m.Waiters = append(m.Waiters, Waiter(w))
	}
	return m
}

// holder is a hold as this package shows it. Lingering is added by showIn.
func holder(h engine.Holder) Holder {
	return Holder{
		Owner: h.Owner, Hold: h.Hold, Meta: h.Meta, Mode: h.Mode, Count: h.Count, Cohort: h.Cohort,
		Remaining: h.Remaining, Held: h.Held,
	}
}

// showIn adds to the hold of this RWMutex, if it is there, what only its process knows: Redis has one hold for all of
// its goroutines.
func (m *place) showIn(holders []Holder) {
	m.mu.Lock()
	id, in := "", m.local.readers.number()
	if remote := m.remote.Load(); remote != nil {
		id = remote.id
	}
	if m.local.writer || m.local.converting != nil {
		in++
	}
	m.unlock()
	for i := range holders {
		if h := &holders[i]; h.Hold == id {
			h.Count, h.Lingering = in, in == 0
		}
	}
}

// poll elects what enough masters show, in the order in which they got there. What fewer show is a hold that is being
// granted, yielded or released at this moment, or that some have lost: it is in nobody's way for long.
type poll[T any] struct {
	need    int
	votes   map[string]int
	elected []T
}

func newPoll[T any](need int) *poll[T] { return &poll[T]{need: need, votes: make(map[string]int)} }

// vote counts a hold that one more master shows. It is elected once, with what the master that decides shows of it: the
// times of different masters are by different clocks, and cannot be put together.
func (p *poll[T]) vote(id string, v T) {
	if p.votes[id]++; p.votes[id] == p.need {
		p.elected = append(p.elected, v)
	}
}

package engine

import (
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// phase is where a lease is in its life; it only moves forward.
type phase uint8

const (
	asking phase = iota
	held
	ended
)

// Lease is the client's side of one hold: first the request for it, then the trust in it. Its zero value is made for
// Engine.Acquire. All methods may be called from any goroutine.
type Lease struct {
	e     *Engine
	keys  keys
	name  string
	mode  fencing.Mode
	owner string
	terms *Terms
	entry Entry
	begun instant
	floor string // the proposal of the first round, the same for all masters

	mu    sync.Mutex
	phase phase
	hold  string // a new one for each attempt
	slots []slot // one for each master
	one   [1]slot
	asks  int

	target   fencing.Token // what the masters are brought to; 0 before a quorum has granted
	token    fencing.Token
	deadline instant
	capped   time.Duration // where MaxHold ends the lease, or never
	renewal  renewal
	alarm    alarm

	waits   bool          // in its rooms and in the count of waiters
	ready   chan struct{} // closed at the end of asking, once somebody waits for it
	failure error         // why asking ended without a lease
	done    chan struct{} // closed at the end; made when asked for
	end     error         // nil, ErrReleased or *Loss
	ends    map[*func(error)]struct{}
	later   []func() // to be run after mu is given back
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.name }

// Mode returns the granted mode. A joined hold has the mode of its owner's standing hold.
func (l *Lease) Mode() fencing.Mode { return l.mode }

// Owner returns the owner's id.
func (l *Lease) Owner() string { return l.owner }

// Hold returns the id of this acquisition.
func (l *Lease) Hold() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold
}

// Token returns the fencing token.
func (l *Lease) Token() fencing.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Waited returns how long the acquisition has taken.
func (l *Lease) Waited() time.Duration { return l.e.clock.now().mono - l.begun.mono }

// Deadline returns until when the lease is trusted, by this process's clocks.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := min(l.deadline.mono, l.capped) - l.e.clock.now().mono
	return time.Now().Add(left)
}

// Err returns nil while the lease is trusted, and ErrReleased or a *Loss after. It looks at the clocks itself: a
// process that was stopped learns of its loss at its first question, not when the schedule comes to it.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.unlock()
	l.expire(l.e.clock.now())
	return l.end
}

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.phase == ended {
			close(l.done)
		}
	}
	return l.done
}

// OnEnd calls f once with Err's value when the lease ends, at once if it has. The function returned takes f out.
func (l *Lease) OnEnd(f func(error)) (remove func()) {
	l.mu.Lock()
	if l.phase == ended {
		end := l.end
		l.mu.Unlock()
		f(end)
		return func() {}
	}
	if l.ends == nil {
		l.ends = make(map[*func(error)]struct{})
	}
	l.ends[&f] = struct{}{}
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		delete(l.ends, &f)
		l.mu.Unlock()
	}
}

// unlock gives mu back and then runs what must not run under it: hooks, contexts' ends, posts to other parts.
func (l *Lease) unlock() {
	later := l.later
	l.later = nil
	l.mu.Unlock()
	for _, f := range later {
		f()
	}
}

// finish ends a held lease, under mu. It is the only way out of that phase.
func (l *Lease) finish(end error) {
	l.phase, l.end = ended, end
	l.e.counters.held.Add(-1)
	l.e.schedule.cancel(&l.alarm)
	l.e.forget(l.hold)
	if l.done != nil {
		close(l.done)
	}
	for f := range l.ends {
		l.later = append(l.later, func() { (*f)(end) })
	}
	l.ends = nil
}

// ring is the schedule's call at the lease's next moment.
func (l *Lease) ring(now instant) {
	l.mu.Lock()
	defer l.unlock()
	l.expire(now)
	if l.phase != held {
		return
	}
	if now.mono >= l.renewal.due && l.renewal.round == nil {
		l.startRenewal(now)
	}
	l.arm()
}

// arm sets the alarm to whatever comes next, under mu.
func (l *Lease) arm() {
	at := min(l.deadline.mono, l.capped)
	if l.renewal.round == nil {
		at = min(at, l.renewal.due)
	}
	l.e.schedule.set(&l.alarm, l, at)
}

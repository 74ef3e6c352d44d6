package engine

import (
	"strconv"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
)

// phase is where a lease is in its life; it only moves forward.
type phase uint8

const (
	asking phase = iota
	held
	ended
)

// Lease is the client's side of one hold: the trust in it, from the grant to Release or loss. While the hold is asked
// for, its acquisition has the say. The zero value is made for Engine.Acquire. All methods may be called from any
// goroutine.
type Lease struct {
	e     *Engine
	keys  keys
	name  string
	mode  fencing.Mode
	owner string
	terms *Terms
	begun clock.Instant

	mu     sync.Mutex
	phase  phase
	hold   string // a new one for each attempt
	detail string // of the hold, as the masters keep it
	ballot ballot.Ballot
	asking *acquisition // nil once it is over

	token    fencing.Token
	cohort   cohort
	deadline clock.Instant
	trust    trust
	limit    time.Duration // where MaxHold ends the lease, or never
	renewal  renewal
	timer    timerqueue.Timer

	done     chan struct{} // closed at the end; made when asked for
	end      error         // nil, ErrReleased, *Failure or *Loss
	ends     map[*func(error)]struct{}
	deferred []func() // to be run after mu is given back
	untold   bool     // the hooks have not been told of the beginning
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

// Deadline returns until when the lease is trusted, by this process's clocks.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(min(l.deadline.Mono, l.limit) - l.e.clock.Now().Mono)
}

// Err returns nil while the lease is trusted, and ErrReleased or a *Loss after. It looks at the clocks itself: a
// process that was stopped learns of its loss at its first question, not when the timers come to it.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.unlock()
	l.expire(l.e.clock.Now())
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

// OnEnd calls f once with Err's value when the lease ends, at once if it has. f must not block. The function returned
// takes f out.
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

// unlock gives mu back and then runs what must not run under it: contexts' ends, calls to other parts.
func (l *Lease) unlock() {
	deferred := l.deferred
	l.deferred = nil
	l.mu.Unlock()
	for _, f := range deferred {
		f()
	}
}

func (l *Lease) afterUnlock(f func()) { l.deferred = append(l.deferred, f) }

// begin turns a granted acquisition into a lease, under mu.
func (l *Lease) begin(token fencing.Token, until, now clock.Instant, handedOff bool) {
	l.phase, l.token = held, token
	l.trustUntil(until)
	l.cohort.first = l.ballot.First(token)
	if limit := l.terms.MaxHold; limit > 0 {
		l.limit = now.Mono + limit
	}
	l.e.sawToken(token)
	l.e.counters.held.Add(1)
	l.e.counters.acquired.Add(1)
	l.tellAcquired()
	// A grant from the queue, however it was heard of, lasts for the hand-off TTL until it is confirmed.
	handOff := l.e.drift.Trusted(now, l.terms.handoffTTL)
	l.renewal.confirm = (handedOff || l.terms.handoffTTL < l.terms.TTL) && until.Mono <= handOff.Mono
	l.planRenewal(now)
	l.setTimer()
}

// finish ends a held lease, under mu. It is the only way out of that phase.
func (l *Lease) finish(end error) {
	l.phase, l.end = ended, end
	l.trust.end()
	l.e.counters.held.Add(-1)
	l.e.timers.Cancel(&l.timer)
	l.e.forget(l.hold)
	if l.done != nil {
		close(l.done)
	}
	for f := range l.ends {
		l.afterUnlock(func() { (*f)(end) })
	}
	l.ends = nil
}

// expire ends the lease if its time is over, under mu, whatever any call is doing. The masters keep the hold a little
// longer, so nobody else is in yet.
func (l *Lease) expire(now clock.Instant) {
	if l.phase != held {
		return
	}
	switch {
	case now.Mono >= l.limit:
		l.lose(MaxHold, nil)
	case !l.deadline.Passed(now):
	case now.Mono < l.deadline.Mono:
		l.lose(Paused, nil) // only the wall clock got there
	default:
		l.lose(l.renewal.whyExpired(now))
	}
}

// lose ends the lease without its holder's wish, under mu. What a minority of the masters may still have is released.
func (l *Lease) lose(reason Reason, cause error) *Loss {
	loss := &Loss{Name: l.name, Token: l.token, Reason: reason, Err: cause}
	l.e.counters.lost.Add(1) // first: whoever sees the end sees it counted
	l.tellLost(loss)
	l.finish(loss)
	l.releaseInBackground()
	return loss
}

// Fire is the timer's call at the lease's next moment.
func (l *Lease) Fire(now clock.Instant) {
	l.mu.Lock()
	defer l.unlock()
	l.expire(now)
	if l.phase != held {
		return
	}
	switch r := l.renewal.round; {
	case r != nil && now.Mono >= r.sent.Mono+l.e.stallAfter():
		l.stalled(now)
	case r == nil && now.Mono >= l.renewal.due:
		l.startRenewal(now)
	}
	l.setTimer()
}

// setTimer sets the timer to whatever comes next, under mu.
func (l *Lease) setTimer() {
	at := min(l.deadline.Mono, l.limit)
	if r := l.renewal.round; r != nil {
		at = min(at, r.sent.Mono+l.e.stallAfter())
	} else {
		at = min(at, l.renewal.due)
	}
	l.e.timers.Set(&l.timer, l, at)
}

// shutDown ends whatever phase the lease is in, because the engine is closed.
func (l *Lease) shutDown() {
	l.mu.Lock()
	defer l.unlock()
	switch l.phase {
	case asking:
		l.asking.giveUp(l.asking.failure(Closed, ErrClosed))
	case held:
		l.tellReleased()
		l.finish(ErrReleased)
		l.releaseInBackground()
	}
}

func (l *Lease) tokenArg() string { return strconv.FormatUint(uint64(l.token), 10) }

// Package schedule decides when the waiters of a process ask a master for their lock. It has no clock, no lock and no
// I/O: times come in, and the caller sets its timer to what At returns.
package schedule

import (
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
)

// Refreshes are when the waiters of one process for one lock ask one master, together. One refresh is under way at a
// time: over a slow link several would pile up, and the refreshes of a crowd would delay other locks. After a wake-up
// in the meantime the next one follows at once.
type Refreshes struct {
	every    time.Duration        // the shortest interval that a waiter needs; 0 once the last waiter has left
	due      time.Duration        // when to ask next
	inFlight bool                 // the refresh, from Asks to Answered
	news     time.Duration        // when a waiter was last added or granted
	refused  [kinds]time.Duration // since when, by the kind; clock.Never while the server serves it
	allAt    time.Duration        // while the server refuses waiters' own requests, one of them asks for all until then
}

// Kind is a kind of request. An answer to one kind says nothing about the other: a server that is out of memory refuses
// a waiter's own request, which writes, and serves the refreshes of those that are queued.
type Kind uint8

const (
	Own     Kind = iota // a waiter's own, until it is queued
	Refresh             // one for all that are queued
	kinds
)

// Outcome is what the master has answered, to a refresh or to a waiter's own request. If it has neither served nor
// refused it, what it refused before still counts.
type Outcome struct {
	Served  bool
	Refused bool          // it cannot serve now, has no queue, and sends no message when it can
	Granted bool          // to a waiter
	Again   bool          // it has to be asked once more
	Wake    time.Duration // after this a refresh may have another answer, because a hold expires; 0 if that is unknown
}

// Whom says which waiters to ask for.
type Whom uint8

// All are named in one refresh, or send their own requests. One of them sends a request for all where the server
// refuses those.
const (
	Nobody Whom = iota
	One
	All
)

// Without messages waiters ask at an interval that begins with pollMin and grows to the time since the last news, so
// that it doubles. A server that refuses during a failover, or while a slot moves, may serve again at any moment.
const (
	pollMin     = 10 * time.Millisecond
	refusedMost = 40 * time.Millisecond
)

// Begin is called before the first waiter is added.
func Begin(now time.Duration) Refreshes {
	served := [kinds]time.Duration{clock.Never, clock.Never}
	return Refreshes{every: clock.Never, due: clock.Never, news: now, refused: served}
}

// At returns when to call Ask.
func (r *Refreshes) At() time.Duration {
	if r.inFlight || r.every == 0 {
		return clock.Never
	}
	return r.due
}

// RefusedFor returns for how long the server has refused requests of this kind, 0 where it serves them.
func (r *Refreshes) RefusedFor(now time.Duration, k Kind) time.Duration {
	return max(now-r.refused[k], 0)
}

// Refused reports whether the server refuses any kind.
func (r *Refreshes) Refused() bool { return r.refuses(Own) || r.refuses(Refresh) }

func (r *Refreshes) refuses(k Kind) bool { return r.refused[k] != clock.Never }

// Add adds a waiter that has to be asked for at this interval, after the answer to its own request, if there was one.
// Here and below, a master is silent if its messages do not arrive.
func (r *Refreshes) Add(now, every time.Duration, silent bool, a Outcome) {
	r.every = min(r.every, every)
	if !a.Refused {
		r.news = now
	}
	r.note(now, silent, Own, a)
}

// Wake has all of them ask at once.
func (r *Refreshes) Wake(now time.Duration) { r.due = min(r.due, now) }

// WakeRefused is Wake where another server may answer, which does not refuse.
func (r *Refreshes) WakeRefused(now time.Duration) {
	r.allAt = 0
	r.Wake(now)
}

// End is called when the last waiter has left.
func (r *Refreshes) End() { r.every = 0 }

// Ask returns which waiters to ask for now, and plans for an answer that brings nothing. A master in backoff is not
// asked before the backoff ends.
func (r *Refreshes) Ask(now, backoff time.Duration, silent bool) Whom {
	switch {
	case r.At() > now:
		return Nobody
	case backoff > now:
		r.due = backoff
		return Nobody
	}
	r.due = clock.Never
	r.plan(now, silent, 0)
	if r.refuses(Own) && now < r.allAt {
		return One
	}
	r.allAt = now + r.every
	return All
}

// Asks is called after Ask with what the waiters ask: some with requests of their own, those that are queued with a
// refresh. Where there is no request of a kind, there is no answer that would end its refusal.
func (r *Refreshes) Asks(own, refresh bool) {
	r.inFlight = refresh
	for k, asked := range [kinds]bool{own, refresh} {
		if !asked {
			r.refused[k] = clock.Never
		}
	}
}

// Answered is called when the refresh is over.
func (r *Refreshes) Answered(now time.Duration, silent bool, a Outcome) {
	r.inFlight = false
	if a.Granted {
		r.news = now
	}
	r.note(now, silent, Refresh, a)
}

// note plans what follows from an answer. Where the server begins to serve waiters' own requests, all that are not
// queued ask.
func (r *Refreshes) note(now time.Duration, silent bool, k Kind, a Outcome) {
	if a.Again || k == Own && a.Served && r.refuses(Own) {
		r.Wake(now)
	}
	switch {
	case a.Served:
		r.refused[k] = clock.Never
	case a.Refused && !r.refuses(k):
		r.refused[k] = now
	}
	r.plan(now, silent, a.Wake)
}

// plan moves the next refresh to an earlier time: the regular one, or an earlier one if an expiry may let a waiter
// enter before that.
//
// A waiter's lease covers three refreshes, so that two may be lost. Asking early is for holds that expire without a
// release. No message reports these, because no script runs at that moment.
func (r *Refreshes) plan(now time.Duration, silent bool, wake time.Duration) {
	pause, quiet := r.every, max(pollMin, now-r.news)
	if silent {
		pause = min(pause, quiet)
	}
	if r.Refused() {
		pause = min(pause, quiet, refusedMost)
	}
	if wake > 0 {
		pause = min(pause, wake+time.Millisecond) // the server counts whole milliseconds
	}
	r.due = min(r.due, now+pause)
}

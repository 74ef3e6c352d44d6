package engine

import (
	"slices"

	"github.com/seed74116694/fencelock/fencing"
)

// decide draws the verdict from what the masters have said so far, under mu. It runs after every change of a slot.
func (l *Lease) decide() {
	if l.phase != asking {
		return
	}
	now := l.e.clock.now()
	switch token, until, ok := l.agreed(); {
	case ok && !until.passed(now): // the validity last: time may have gone by since the grants
		l.becomeHeld(token, until, now)
		return
	case ok && l.entry == Wait:
		l.restart()
		return
	case ok:
		l.giveUp(l.fail(Contended, errLate))
		return
	}
	if kind, hopeless := l.hopeless(); hopeless {
		l.giveUp(l.fail(kind, nil))
	}
}

// agreed returns the token that a quorum of the masters has granted, and until when a quorum of those grants is
// trusted. The token is the q-th smallest of the values; a master above it does not count.
func (l *Lease) agreed() (token fencing.Token, until instant, ok bool) {
	q := l.e.quorum()
	if len(l.slots) == 1 {
		s := &l.slots[0]
		return s.token, s.until, s.standing == granted
	}
	var values []fencing.Token
	for i := range l.slots {
		if l.slots[i].standing == granted {
			values = append(values, l.slots[i].token)
		}
	}
	if len(values) < q {
		return 0, instant{}, false
	}
	slices.Sort(values)
	token = values[q-1]
	var ends []instant
	for i := range l.slots {
		if s := &l.slots[i]; s.standing == granted && s.token == token {
			ends = append(ends, s.until)
		}
	}
	if len(ends) < q {
		return 0, instant{}, false
	}
	slices.SortFunc(ends, func(a, b instant) int { return int(b.mono - a.mono) })
	return token, ends[q-1], true
}

// hopeless reports that no quorum can come about without asking again, where asking again is not wanted or useless.
func (l *Lease) hopeless() (Kind, bool) {
	possible, stuck := 0, 0
	var conflict bool
	for i, m := range l.e.masters {
		s := &l.slots[i]
		if s.standing == granted || s.standing == asked {
			possible++
		}
		if s.standing == failed && isPermanent(s.err, m.client.Mode()) {
			stuck++
			conflict = conflict || isConflict(s.err)
		}
	}
	tolerated := len(l.slots) - l.e.quorum()
	switch {
	case conflict && stuck > tolerated:
		return Conflict, true
	case stuck > tolerated:
		return NoQuorum, true
	case l.entry != Wait && possible < l.e.quorum():
		return l.standstill(), true
	}
	return 0, false
}

// becomeHeld turns a granted request into a lease, under mu.
func (l *Lease) becomeHeld(token fencing.Token, until instant, now instant) {
	l.token, l.deadline = token, until
	if limit := l.terms.MaxHold; limit > 0 {
		l.capped = now.mono + limit
	}
	handed := false
	for i := range l.slots {
		handed = handed || l.slots[i].handed
	}
	if l.waits {
		l.e.counters.contended.Add(1)
	}
	if handed {
		l.e.counters.handedOff.Add(1)
	}
	l.renewal.confirm = handed
	l.leaveAsking(held)
	l.e.counters.held.Add(1)
	l.planRenewal(now, until.mono-now.mono)
	l.arm()
}

// restart gives up a hold that was granted too late to be of use, and asks with a new one, under mu.
func (l *Lease) restart() {
	l.later = append(l.later, l.discard())
	l.e.forget(l.hold)
	l.hold = newULID()
	clear(l.slots)
	if !l.e.register(l) {
		l.giveUp(l.fail(Closed, ErrClosed))
		return
	}
	for _, m := range l.e.masters {
		l.line(m, rounding)
	}
}

// errLate is the end of a grant that was answered after its time.
var errLate = lateError{}

type lateError struct{}

func (lateError) Error() string { return "the grant came after it had expired" }

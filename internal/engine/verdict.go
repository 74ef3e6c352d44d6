package engine

import (
	"cmp"
	"errors"
	"slices"

	"github.com/seed74116694/fencelock/fencing"
)

// decide draws the verdict from what the masters have said so far, under mu. It runs after every change of a slot.
func (l *Lease) decide() {
	if l.phase != asking {
		return
	}
	now := l.e.clock.now()
	until, agreed := l.agreed()
	switch {
	case agreed && !until.passed(now): // the validity last: time has gone by since the grants, and a raise took some
		l.becomeHeld(until, now)
	case agreed, l.target != 0 && l.reach() < l.e.quorum():
		l.restart()
	default:
		if kind, hopeless := l.hopeless(); hopeless {
			l.giveUp(l.fail(kind, nil))
			return
		}
		l.giveWanted()
	}
}

// agreed reports whether a quorum of the masters has granted the hold with one and the same token, l.target, and
// until when a quorum of those grants is trusted.
//
// The target is decided once, from the first quorum of grants: the q-th smallest of their values. Masters below it are
// raised; one above it does not count, since its counter has gone past the target without knowing of it. So every
// token that is reported stands on a quorum of masters that had counted to it before, and the next quorum shares a
// master with it and counts on. The comparison, the raise and the order of these steps are the model's; see
// redlock/model.
func (l *Lease) agreed() (until instant, ok bool) {
	q := l.e.quorum()
	switch {
	case l.target != 0:
	case l.entry == Join:
		if token, n := l.common(); n >= q {
			l.target = token
		} else {
			return instant{}, false
		}
	default:
		values := make([]fencing.Token, 0, 8)
		for i := range l.slots {
			if l.slots[i].standing == granted {
				values = append(values, l.slots[i].token)
			}
		}
		if len(values) < q {
			return instant{}, false
		}
		slices.Sort(values)
		l.target = values[q-1]
	}
	ends := make([]instant, 0, 8)
	for i := range l.slots {
		if s := &l.slots[i]; s.standing == granted && s.token == l.target {
			ends = append(ends, s.until)
		}
	}
	if len(ends) < q {
		l.raiseBelow()
		return instant{}, false
	}
	slices.SortFunc(ends, func(a, b instant) int { return cmp.Compare(b.mono, a.mono) })
	return ends[q-1], true
}

// common returns the token that most of the grants share. A join adds to a hold that stands, so there is nothing to be
// raised: the owner holds the lock with the token that a quorum of masters report, and a master with another one did
// not count when it was granted.
func (l *Lease) common() (token fencing.Token, grants int) {
	votes := make(map[fencing.Token]int, len(l.slots))
	for i := range l.slots {
		if s := &l.slots[i]; s.standing == granted {
			if votes[s.token]++; votes[s.token] > grants {
				token, grants = s.token, votes[s.token]
			}
		}
	}
	return token, grants
}

// reach is how many masters may still come to the target.
func (l *Lease) reach() (n int) {
	for i := range l.slots {
		switch s := &l.slots[i]; s.standing {
		case asked:
			n++
		case granted:
			if s.token == l.target || s.token < l.target && l.entry != Join {
				n++
			}
		}
	}
	return n
}

// hopeless reports that no quorum can come about without asking again, where asking again is not wanted or useless.
func (l *Lease) hopeless() (Kind, bool) {
	stuck, conflict := 0, false
	for i, m := range l.e.masters {
		if s := &l.slots[i]; s.standing == failed && isPermanent(s.err, m.client.Mode()) {
			stuck++
			conflict = conflict || isConflict(s.err)
		}
	}
	tolerated := len(l.slots) - l.e.quorum()
	switch {
	case stuck > tolerated && conflict:
		return Conflict, true
	case stuck > tolerated:
		return NoQuorum, true
	case l.entry == Try && l.possible() < l.e.quorum():
		return l.untaken()
	case l.entry == Join && l.possible() < l.e.quorum():
		return l.unjoined()
	}
	return 0, false
}

// unjoined tells an owner that has no standing hold from one that only reads: it must not be taken for the former
// because a master has not heard of its hold yet, or it would go on to wait for itself.
func (l *Lease) unjoined() (Kind, bool) {
	reading, absent := 0, 0
	for i := range l.slots {
		switch s := &l.slots[i]; {
		case s.standing != refused:
		case s.reads:
			reading++
		default:
			absent++
		}
	}
	switch {
	case absent > len(l.slots)-l.e.quorum():
		return Absent, true
	case reading > 0:
		return Upgrade, true
	case l.count1(asked)+l.count1(unasked) > 0:
		return 0, false // what is still to come decides between the two
	}
	return NoQuorum, true
}

// untaken tells a lock that others hold from one that cannot be asked for. Both may be open although it is certain
// that this attempt fails; then what is still to come decides.
func (l *Lease) untaken() (Kind, bool) {
	open := l.count1(asked) + l.count1(unasked)
	kind := l.standstill()
	return kind, kind == Contended || l.answers()+open < l.e.quorum()
}

// possible is how many masters may be of one mind, if those that have yet to answer are.
func (l *Lease) possible() int {
	open := l.count1(asked) + l.count1(unasked)
	if l.entry == Join {
		_, grants := l.common()
		return open + grants
	}
	return open + l.count1(granted)
}

// standstill tells being kept out from not being answered, under mu.
func (l *Lease) standstill() Kind {
	if l.answers() >= l.e.quorum() {
		return Contended
	}
	return NoQuorum
}

// becomeHeld turns a granted request into a lease, under mu.
func (l *Lease) becomeHeld(until, now instant) {
	l.token, l.deadline = l.target, until
	l.e.saw(l.token)
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

// tries bounds how often a single attempt is begun anew for a grant that came to nothing.
const tries = 3

var errLate = errors.New("every grant came too late or without a common token")

// restart gives up a hold that came to nothing, because it was granted too late or because the masters could not be
// brought to one token, and asks with a new one, under mu. A join has no second try: what it wanted to join is not
// standing on a quorum.
func (l *Lease) restart() {
	switch {
	case l.entry == Join:
		l.giveUp(l.fail(NoQuorum, errLate))
		return
	case l.entry == Try && l.asks > tries: // over a link slower than the TTL every grant comes too late
		l.giveUp(l.fail(NoQuorum, errLate))
		return
	}
	l.later = append(l.later, l.discard())
	l.e.forget(l.hold)
	l.hold = newULIDAt(l.begun.wall)
	clear(l.slots)
	l.target = 0
	if !l.e.register(l) {
		l.giveUp(l.fail(Closed, ErrClosed))
		return
	}
	floor := l.e.proposal(l.e.clock.now())
	for _, m := range l.e.masters {
		l.later = append(l.later, func() { l.askAgain(m, floor) })
	}
}

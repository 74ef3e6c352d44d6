package engine

import (
	"strconv"

	"github.com/redis/rueidis"
)

// What only several masters need: bringing their grants to one token, and giving way where votes are split.

// post sends a script call for this hold through the master's lane. done gets the answer under mu, unless the lease
// has given the hold up.
func (l *Lease) post(m *master, p *program, args []string, done func(s *slot, a answer, sent instant)) {
	hold := l.hold
	l.later = append(l.later, func() {
		m.lane.post(job{program: p, keys: l.e.sent(&l.keys), args: args, done: func(r rueidis.RedisResult, sent instant) {
			a := readAnswer(r)
			m.sample(sent, a.elapsed)
			l.mu.Lock()
			defer l.unlock()
			if hold == l.hold && l.phase != ended {
				done(&l.slots[m.index], a, sent)
				l.decide()
			}
		}})
	})
}

// raiseBelow brings the masters below the target up to it, under mu. While the lease is asked for its verdict waits
// for a quorum of them; those that answer later converge without anybody waiting.
func (l *Lease) raiseBelow() {
	if l.entry == Join {
		return
	}
	now := l.e.clock.now()
	for i, m := range l.e.masters {
		s := &l.slots[i]
		if s.standing != granted || s.token >= l.target || s.raising {
			continue
		}
		s.raising = true
		args := l.e.args(now, l.hold, strconv.FormatUint(uint64(l.target), 10))
		l.post(m, l.e.programs.raise, args, func(s *slot, a answer, sent instant) {
			s.raising = false
			switch {
			case a.err == nil && a.status == statusGranted && a.token == l.target:
				s.token, s.until = a.token, l.e.drift.trusted(sent, a.left)
			case a.err == nil:
				s.standing, s.err = passed, nil
			default:
				s.standing, s.err, s.unknown = failed, a.err, true
			}
		})
	}
}

// yield gives the master's grant to an older hold that waits behind it, or keeps it where none does, under mu. Until
// the answer the grant does not count: it may be gone.
func (l *Lease) yield(m *master, now instant) {
	s := &l.slots[m.index]
	if l.phase != asking || l.entry != Wait || l.target != 0 || s.standing != granted {
		return
	}
	s.standing, s.yielded = yielding, s.token
	l.sendYield(m, now)
}

// sendYield sends the yield of the slot's grant, under mu. One that was not answered is sent again until it is: it may
// have run, or may yet, so an answer to anything else would not tell whether the grant stands.
func (l *Lease) sendYield(m *master, now instant) {
	s := &l.slots[m.index]
	if s.giving {
		return
	}
	s.giving = true
	args := l.e.args(now, l.hold, l.terms.claimArg, strconv.FormatUint(uint64(s.token), 10))
	l.post(m, l.e.programs.yield, args, l.yieldedTo(m))
}

func (l *Lease) yieldAgain(m *master, now instant) {
	l.mu.Lock()
	defer l.unlock()
	if l.phase == asking && l.slots[m.index].standing == yielding {
		l.sendYield(m, now)
	}
}

func (l *Lease) yieldedTo(m *master) func(*slot, answer, instant) {
	return func(s *slot, a answer, sent instant) {
		s.giving = false
		if s.standing != yielding {
			return // granted anew since: that message was faster than this answer
		}
		s.err = a.err
		switch {
		case a.err != nil && isPermanent(a.err, m.client.Mode()):
			s.standing, s.unknown = failed, true
		case a.err != nil: // the room sends it again
		case a.status == statusGranted:
			l.granted(m, a.token, l.e.drift.trusted(sent, a.left), s.handed)
			return
		case a.status == statusQueued:
			s.standing = queued
		default:
			s.standing = unasked
		}
		if l.phase == asking {
			l.line(m, a.left)
		}
	}
}

// giveWay yields everywhere once all masters have answered without a quorum for this hold, under mu. The oldest
// contender keeps its grants, since the scripts find no older one behind it, so one round settles a split vote.
func (l *Lease) giveWay() {
	if len(l.slots) == 1 || l.count1(asked) > 0 || l.count1(queued) == 0 {
		return
	}
	now := l.e.clock.now()
	for _, m := range l.e.masters {
		l.yield(m, now)
	}
}

// nudged is told that an older hold waits behind this one on a master.
func (l *Lease) nudged(m *master) {
	l.mu.Lock()
	defer l.unlock()
	l.slots[m.index].wanted = true
	l.giveWanted()
}

// giveWanted yields the grants that an older hold waits for, under mu. The message may have come before the answer
// that brought the grant, or before that to an earlier yield, so it is remembered until there is a grant to yield.
func (l *Lease) giveWanted() {
	for i, m := range l.e.masters {
		if s := &l.slots[i]; s.wanted && s.standing == granted {
			s.wanted = false
			l.yield(m, l.e.clock.now())
		}
	}
}

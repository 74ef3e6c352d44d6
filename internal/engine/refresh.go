package engine

import (
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// waiter is one queued hold of a wait set.
type waiter struct {
	a    *acquisition
	hold string
}

// refreshFields is the number of fields in refresh.lua's reply before the fields of the waiters, and for each waiter.
const refreshFields = 3

// What refresh.lua and release.lua report besides their answers: the call has left waiters that may enter, or it
// admitted no waiter because this client has to read the master's marker first.
const (
	moreToAdmit = 1
	moreToRead  = 2
)

// The statuses of a waiter in refresh.lua's reply.
const (
	refreshGranted = 1
	refreshUnknown = 2
)

// refreshLapsed is added to these: the far waiters that the master recorded before this call are dead.
const refreshLapsed = 4

// refresh keeps the waiters alive on the master and learns their state. Far waiters live by the lease of the process,
// which every call renews if there are any. The call goes through the pipeline and is not urgent: while the server is
// in backoff it fails at once, and the timer that is set already tries again.
func (s *waitSet) refresh(batch []waiter, far bool, proposal int64) {
	w := s.in
	route, life, state := w.e.mailbox.route(s.keys[0]), "0", "0"
	w.mu.Lock()
	if s.crowd.hasBehind() {
		life = millis(refreshes * s.every)
		if s.route != route {
			s.crowd.tellAll() // the lease that they live by is named by its route
		}
	}
	if s.busy || len(batch) == 0 && life == "0" {
		w.mu.Unlock()
		return
	}
	s.route, s.kept = route, s.kept && life != "0"
	s.busy = true
	w.mu.Unlock()
	if far {
		state = "1"
	}
	args := make([]string, 0, 4+len(batch))
	args = append(args, w.m.Vote(proposal), route, life, state)
	for _, waiter := range batch {
		args = append(args, waiter.hold)
	}
	w.m.Post(transport.Call{
		Script: w.e.scriptsOf(w.m).refresh, Keys: s.keys, Args: args,
		Done: func(r rueidis.RedisResult, sent clock.Instant) { s.refreshed(batch, life != "0", r, sent) },
	})
}

// refreshed passes each waiter its part of the reply, and sets the time of the next refresh. It locks the leases one by
// one, outside the mutex of the wait sets, because a lease's mutex is acquired before that mutex.
func (s *waitSet) refreshed(batch []waiter, keeps bool, r rueidis.RedisResult, sent clock.Instant) {
	w := s.in
	fields, err := r.AsIntSlice()
	if err == nil && len(fields) != refreshFields*(1+len(batch)) {
		err = fmt.Errorf("malformed reply of %d fields", len(fields))
	}
	var wake time.Duration
	var unknown []*acquisition
	var silence *ballot.Answer
	more, lapsed, granted := false, false, false
	// Without a reply nothing is known about any waiter. Each keeps its place if a later refresh comes before its lease
	// ends.
	if err != nil {
		answer := w.e.answer(w.m, s.keys[0], false, reply{err: err}, sent)
		silence = &answer
		for _, waiter := range batch {
			waiter.refreshed(w, answer)
		}
		w.failed(s.name, s.node(), err)
	} else {
		w.m.Sample(s.keys[0], sent, fields[0])
		wake = time.Duration(fields[1]) * time.Millisecond
		lapsed = fields[2]&refreshLapsed != 0
		switch fields[2] &^ refreshLapsed {
		case moreToAdmit:
			more = true
		case moreToRead:
			w.e.membership.recheck()
		}
		for i, waiter := range batch {
			f := fields[refreshFields*(1+i):]
			left := time.Duration(f[2]) * time.Millisecond
			granted = granted || f[0] == refreshGranted
			if waiter.refreshed(w, w.e.refreshAnswer(w.m, f[0], f[1], left, sent)) {
				unknown = append(unknown, waiter.a)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.e.clock.Now().Mono
	if granted {
		s.polls = 0
	}
	s.refreshAnswered(now, err)
	s.busy, s.silence = false, silence
	for _, a := range unknown {
		if s.crowd.isNear(a) {
			more = true
		} else {
			s.crowd.add(a)
		}
	}
	switch {
	case err != nil || lapsed && s.kept: // a reply that was lost may have reported that they are dead
		s.crowd.tellAll()
	case keeps:
		s.kept = true
	}
	s.setTimer(now, wake)
	// A request that arrived during this refresh may be newer than its answers, so the set is refreshed once more. If
	// the message of one grant was lost, the messages of the next grants may be lost too.
	if (more || s.stale || granted && s.crowd.hasBehind()) && len(s.crowd.places) > 0 {
		s.askAt(now)
	}
	s.stale = false
	if err == nil && s.crowd.hasNews() {
		w.e.timers.SetEarlier(&s.timer, s, now)
	}
}

// refreshAnswer converts the state of one waiter in a refresh to an answer for the ballot. Trust counts from the time
// the refresh was sent, and for the remaining time, because the grant is older than the refresh. A hold that is granted
// here was handed off, and the message was lost or is still on its way.
func (e *Engine) refreshAnswer(
	m *transport.Master, status, token int64, left time.Duration, sent clock.Instant,
) ballot.Answer {
	switch {
	case status == refreshGranted && !isToken(token):
		return e.noAnswer(m, transport.ErrCounter)
	case status == refreshGranted:
		return ballot.Answer{Status: ballot.IsGranted, Token: fencing.Token(token), Until: e.drift.Trusted(sent, left)}
	case status == refreshUnknown:
		return ballot.Answer{Status: ballot.IsAbsent}
	default:
		return ballot.Answer{Status: ballot.IsQueued}
	}
}

// refreshed applies the refresh to this waiter. It reports whether the master must be asked anew because it does not
// know the hold: the waiter's lease ended, or the master lost its data. The hold asks again under the same id, so it
// keeps its place on masters that order by id. On a single master it goes to the end of the queue.
func (x waiter) refreshed(w *waitSets, answer ballot.Answer) (askAgain bool) {
	l := x.a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.hold != l.id || l.phase != asking {
		return false
	}
	if answer.Status == ballot.IsGranted {
		l.granted(w.m, answer.Token, answer.Until)
	} else {
		askAgain = l.ballot.Vote(w.m.Index).Refreshed(answer)
	}
	x.a.decide()
	return askAgain
}

// goOn does the work that a master has left to this client.
func (e *Engine) goOn(m *transport.Master, keys []string, more int64) {
	switch more {
	case moreToAdmit:
		e.continueAdmission(m, keys)
	case moreToRead:
		e.membership.recheck()
	}
}

// continueAdmission has a master continue the work that it left undone to keep a call short. If this client dies first,
// the next refresh of any waiter does the same, so readers that could enter are late by a refresh interval and do not
// get stuck.
func (e *Engine) continueAdmission(m *transport.Master, keys []string) {
	m.Post(transport.Call{
		Script: e.scriptsOf(m).refresh, Keys: keys, Args: []string{m.Vote(e.tokens.proposal()), "-", "0", "0"},
		Done: func(r rueidis.RedisResult, _ clock.Instant) {
			if fields, err := r.AsIntSlice(); err == nil && len(fields) == refreshFields {
				e.goOn(m, keys, fields[2])
			}
		},
	})
}

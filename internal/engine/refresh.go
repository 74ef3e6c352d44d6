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

// waitersPerRefresh bounds one script call, so that a crowd on one lock does not hold up the others: the server does
// nothing else while a script runs.
const waitersPerRefresh = 200

// refreshFields are the fields of refresh.lua's reply before those of the waiters, and for each waiter.
const refreshFields = 3

// What refresh.lua and release.lua say beside their answers: that a call has left some who may enter, or that nobody
// was let in, since this client has to look at the master's marker first.
const (
	moreToAdmit = 1
	moreToRead  = 2
)

// The statuses of a waiter in refresh.lua's reply.
const (
	refreshGranted = 1
	refreshUnknown = 2
)

// refresh keeps the waiters alive on the master and learns what became of them. It goes through the pipeline and is not
// urgent: while the server is in backoff it fails at once, and the timer that is set already tries again.
func (s *waitSet) refresh(batch []waiter, proposal int64) {
	w := s.in
	w.mu.Lock()
	s.busy++
	w.mu.Unlock()
	args := make([]string, 0, 2+len(batch))
	args = append(args, w.m.Vote(proposal), w.e.mailbox.route(s.keys[0]))
	for _, waiter := range batch {
		args = append(args, waiter.hold)
	}
	w.m.Post(transport.Call{
		Script: w.e.scripts.Load().refresh, Keys: s.keys, Args: args,
		Done: func(r rueidis.RedisResult, sent clock.Instant) { s.refreshed(batch, r, sent) },
	})
}

// refreshed hands each waiter its part of the reply, and sets when to ask next. Each waiter's lease is locked by
// itself: its mutex comes before that of the wait sets, so none of this happens under the latter.
func (s *waitSet) refreshed(batch []waiter, r rueidis.RedisResult, sent clock.Instant) {
	w := s.in
	fields, err := r.AsIntSlice()
	if err == nil && len(fields) != refreshFields*(1+len(batch)) {
		err = fmt.Errorf("malformed reply of %d fields", len(fields))
	}
	var wake time.Duration
	again, granted := false, false
	// No reply says nothing of any waiter. Each keeps its place, if a later refresh comes before its lease ends.
	if err != nil {
		answer := w.e.answer(w.m, s.keys[0], false, reply{err: err}, sent)
		for _, waiter := range batch {
			waiter.refreshed(w, answer)
		}
		w.failed(s.node(), err)
	} else {
		w.m.Sample(s.keys[0], sent, fields[0])
		w.outages.over(s.node())
		wake, again = time.Duration(fields[1])*time.Millisecond, fields[2] == moreToAdmit
		if fields[2] == moreToRead {
			w.e.membership.recheck()
		}
		for i, waiter := range batch {
			f := fields[refreshFields*(1+i):]
			left := time.Duration(f[2]) * time.Millisecond
			granted = granted || f[0] == refreshGranted
			again = waiter.refreshed(w, w.e.refreshAnswer(w.m, f[0], f[1], left, sent)) || again
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if granted {
		s.polls = 0
	}
	s.answered(w.e.clock.Now().Mono, transport.Refused(err))
	// What was asked while this one was on its way may be newer than its answers, so it is asked once more.
	again = again || s.stale
	s.stale = false
	s.busy--
	s.setTimer(w.e.clock.Now().Mono, wake)
	if again && len(s.waiters) > 0 {
		w.e.timers.Set(&s.timer, s, w.e.clock.Now().Mono)
	}
}

// refreshAnswer turns what a refresh says of one waiter into what the ballot counts. Trust counts from when the refresh
// was sent, and for what is left: the grant is older than that. A hold that is granted here was handed off, and the
// message was lost or is still on its way.
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

// refreshed counts what the refresh says of this waiter. It reports whether the master must be asked anew: it does not
// know the hold, because its lease as a waiter ended or its data is gone. The hold asks again under the same id, and so
// keeps its place where masters order by id; on a single one it goes to the end.
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

// goOn does what a master has left to this client.
func (e *Engine) goOn(m *transport.Master, keys []string, more int64) {
	switch more {
	case moreToAdmit:
		e.continueAdmission(m, keys)
	case moreToRead:
		e.membership.recheck()
	}
}

// continueAdmission lets a master go on with what it left undone to keep a call short. If this client dies before, the
// next refresh of any waiter does it, so readers who could enter are late by a refresh interval and not stuck.
func (e *Engine) continueAdmission(m *transport.Master, keys []string) {
	m.Post(transport.Call{
		Script: e.scripts.Load().refresh, Keys: keys, Args: []string{m.Vote(e.tokens.proposal()), "-"},
		Done: func(r rueidis.RedisResult, _ clock.Instant) {
			if fields, err := r.AsIntSlice(); err == nil && len(fields) == refreshFields {
				e.goOn(m, keys, fields[2])
			}
		},
	})
}

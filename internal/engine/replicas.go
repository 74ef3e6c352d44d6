package engine

import (
	"errors"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// Where replicas are asked for, whatever makes or keeps a lease counts only once so many of them have it: an acquire, a
// raise and a regain go out with WAIT behind them, and so does every renewal, or the deadline would move past the
// expiry that a replica knows. A grant from the queue was written by another process; its first renewal is a write of
// this one, after it on the same server, so WAIT behind that renewal speaks of both. A master whose replicas do not
// confirm does not count, and is released.

// Unreplicated says that too few replicas of a master have what was written there.
type Unreplicated = transport.Unreplicated

// replicated reports whether grants count only once replicas have them.
func (e *Engine) replicated() bool { return e.cfg.Replicas > 0 }

// granted counts a grant that a message or a refresh told of, under mu: at once, or when the replicas have it.
func (v *voting) granted(m *transport.Master, token fencing.Token, until clock.Instant) {
	vote := v.ballot.Vote(m.Index)
	if !v.e.replicated() {
		vote.Granted(token, until)
		return
	}
	if !vote.Confirming(token) {
		return
	}
	id := v.id
	// A millisecond more than the TTL: an expiry that stays as it is would be no write.
	renewal := &transport.Renewal{
		Lock: v.key.lock(), Holds: v.key.holds(), Hold: id, TTL: millis(v.terms.TTL + time.Millisecond),
		Token: uint64(token), Deadline: until,
		Done: func(renewed bool, err error, sent clock.Instant) { v.confirmed(m, id, token, renewed, err, sent) },
	}
	v.mu.afterUnlock(func() { m.Renew(renewal) })
}

// confirmed takes in the answer to the renewal of such a grant.
func (v *voting) confirmed(
	m *transport.Master, id string, token fencing.Token, renewed bool, err error, sent clock.Instant,
) {
	answer := ballot.Answer{Status: ballot.IsAbsent}
	switch {
	case err != nil:
		answer = v.e.noAnswer(m, err)
	case renewed:
		answer = ballot.Answer{Status: ballot.IsGranted, Token: token, Until: v.e.drift.Trusted(sent, v.terms.TTL)}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if id != v.id || v.phase == ended {
		return
	}
	v.ballot.Vote(m.Index).Confirmed(token, answer)
	v.changed()
}

// unreplicated picks out the error of a call that has run, and that too few replicas have confirmed.
func unreplicated(err error) (*Unreplicated, bool) { return errors.AsType[*Unreplicated](err) }

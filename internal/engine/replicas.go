package engine

import (
	"errors"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// If the engine requires replicas, an operation that makes or keeps a lease counts only once that many replicas have
// it. An acquire, a raise and a regain are followed by WAIT, and so is every renewal, because the deadline would
// otherwise move past the expiry that a replica knows. A grant from the queue was written by another process. Its first
// renewal is a later write on the same server by this process, so the WAIT after that renewal covers both. A master
// whose replicas do not confirm does not count, and is released.

// Unreplicated is the error of a call on a master whose write too few replicas have.
type Unreplicated = transport.Unreplicated

// replicated reports whether grants count only once replicas have them.
func (e *Engine) replicated() bool { return e.cfg.Replicas > 0 }

// granted counts a grant that a message or a refresh reported, under mu: at once, or when the replicas have it. A vote
// has at most one confirmation under way. A later grant is confirmed when the next refresh reports it.
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
	// A millisecond more than the TTL, because an unchanged expiry would not be a write.
	renewal := &transport.Renewal{
		Lock: v.key.lock(), Holds: v.key.holds(), Hold: id, TTL: millis(v.terms.TTL + time.Millisecond),
		Token: uint64(token), Deadline: until,
		Done: func(renewed bool, err error, sent clock.Instant) { v.confirmed(m, id, token, renewed, err, sent) },
	}
	v.mu.afterUnlock(func() { m.Renew(renewal) })
}

// confirmed applies the answer to the renewal of such a grant. A renewal without an answer may have moved the expiry on
// the server. Then the grant only lasts longer there than it is trusted here.
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

// unreplicated returns the error of a call that has run, but that too few replicas have confirmed.
func unreplicated(err error) (*Unreplicated, bool) { return errors.AsType[*Unreplicated](err) }

package ballot_test

import (
	"slices"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
)

// leaseTTL is that of every grant here, and how long a master abstains after it lost its data.
const leaseTTL = 10 * time.Second

// grant is what a master has granted the hold. The zero value is none.
type grant struct {
	token  fencing.Token
	expiry time.Duration
}

func (g grant) stands(now time.Duration) bool { return g.token != 0 && now < g.expiry }

// allowedLead is how far ahead of its clock a master is raised.
const allowedLead = 3

// simMaster is what one master really has of the hold: the scripts, as short as they can be told.
type simMaster struct {
	counter   fencing.Token
	clock     fencing.Token // in the unit of tokens, which run ahead of it
	grant     grant
	waits     bool
	tombstone bool
	busy      bool // another holds the lock
	older     bool // an older hold waits behind this one
	rival     bool // another reader upgrades
	abstains  time.Duration
	forgot    []grant // what it had whenever it lost its data
	snapshot  grant
	restored  bool // a snapshot may have brought back what had ended
}

func (m *simMaster) mint(now time.Duration) {
	m.counter++
	m.grant, m.waits = grant{m.counter, now + leaseTTL}, false
}

// granted is the answer of a master that has granted the hold. Trust ends a moment before the grant.
func (m *simMaster) granted() ballot.Answer {
	return ballot.Answer{Status: ballot.IsGranted, Token: m.grant.token, Until: instant(m.grant.expiry - time.Millisecond)}
}

func instant(at time.Duration) clock.Instant {
	return clock.Instant{Mono: at, Wall: at}
}

func (m *simMaster) acquire(entry ballot.Entry, now time.Duration) ballot.Answer {
	switch {
	case now < m.abstains:
		return down
	case m.tombstone:
		return refused
	case m.grant.stands(now):
		return m.granted()
	case m.waits:
		return queued
	case m.rival && entry == ballot.Upgrade:
		return ballot.Answer{Status: ballot.IsRival}
	case m.busy || m.older:
		if m.waits = entry == ballot.Wait || entry == ballot.Upgrade; m.waits {
			return queued
		}
		return refused
	}
	m.mint(now)
	return m.granted()
}

// occupy grants the lock to another, if it is free.
func (m *simMaster) occupy(now time.Duration) {
	if !m.grant.stands(now) && !m.busy {
		m.busy = true
		m.counter++
	}
}

func (m *simMaster) raise(target fencing.Token, now time.Duration) ballot.Answer {
	switch {
	case now < m.abstains:
		return down
	case !m.grant.stands(now) || m.grant.token > target || m.grant.token < target && m.counter >= target:
		return refused
	case target > m.clock+allowedLead:
		return refused
	}
	m.grant.token, m.counter = target, max(m.counter, target)
	return m.granted()
}

func (m *simMaster) yield(token fencing.Token, now time.Duration) ballot.Answer {
	switch {
	case now < m.abstains:
		return down
	case m.grant.stands(now) && m.grant.token == token && m.older:
		m.grant, m.waits, m.busy, m.older = grant{}, true, true, false
	case m.grant.stands(now) && m.grant.token == token:
		m.mint(now)
	}
	return m.refresh(now)
}

// leave is a yield that gives the grant back in any case.
func (m *simMaster) leave(token fencing.Token, now time.Duration) ballot.Answer {
	switch {
	case now < m.abstains:
		return down
	case m.grant.stands(now) && m.grant.token == token:
		m.grant, m.older = grant{}, false
	}
	return m.refresh(now)
}

func (m *simMaster) refresh(now time.Duration) ballot.Answer {
	switch {
	case m.grant.stands(now):
		return m.granted()
	case m.waits:
		return queued
	default:
		return absent
	}
}

func (m *simMaster) renew(token fencing.Token, now time.Duration) ballot.Answer {
	if !m.grant.stands(now) || m.grant.token != token {
		return absent
	}
	m.grant.expiry = now + leaseTTL
	return m.granted()
}

func (m *simMaster) regain(token fencing.Token, trusted bool, now time.Duration) ballot.Answer {
	switch {
	case now < m.abstains && (!trusted || m.grant.stands(now) && m.grant.token != token):
		return down
	case m.grant.stands(now) && m.grant.token == token:
		return m.granted()
	case m.grant.stands(now) && m.grant.token < token || m.tombstone:
		return absent
	case m.busy:
		m.waits = true
		return queued
	}
	m.grant, m.counter, m.waits = grant{token, now + leaseTTL}, max(m.counter, token), false
	return m.granted()
}

// release ends the hold, and leaves a tombstone where it is due.
func (m *simMaster) release(v *ballot.Vote, now time.Duration) {
	found := m.grant.stands(now) || m.waits
	m.grant, m.waits = grant{}, false
	m.tombstone = v.MayArriveLate() || v.Unanswered() && !found
}

// lose makes the master forget everything, or fall back to its snapshot. Its tokens go on from its clock.
func (m *simMaster) lose(to grant, now time.Duration) {
	m.forgot = append(m.forgot, m.grant)
	m.restored = m.restored || to != (grant{})
	m.grant, m.waits, m.busy, m.older, m.rival, m.abstains = to, false, false, false, false, now+leaseTTL
}

// backs reports whether nobody else can be granted the lock here for as long as the hold trusts this grant.
func (m *simMaster) backs(token fencing.Token, now time.Duration) bool {
	return slices.ContainsFunc(append(m.forgot, m.grant), func(g grant) bool {
		return g.stands(now) && g.token == token
	})
}

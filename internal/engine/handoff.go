package engine

import (
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// onMessage handles a message of a master. `hold token us ttl server` is a hand-off; for a shared hold, `first waiting`
// follows: the first token of its block, and how many waiters want it. `hold` alone reports that a hold that comes
// first waits behind it. `hold wanted` reports that a waiter wants a shared hold. Messages are hints. A message about
// the hold of another client is ignored.
func (b *mailbox) onMessage(m *transport.Master, from *transport.Node, text string) {
	f := strings.Fields(text)
	if len(f) == 0 {
		return
	}
	l := b.e.registry.lookup(f[0])
	switch g, isHandoff := readHandoff(f); {
	case l == nil:
	case len(f) == 1:
		l.yieldRequested(m, f[0])
	case len(f) == 2:
		b.wanted(l, f[0])
	case isHandoff:
		b.handedOff(l, m, from, g)
	}
}

// yieldRequested offers the master's grant to a hold that comes first. A hold that is already held does not yield: it
// stands on a quorum, so the other hold cannot have a quorum before the release.
func (v *voting) yieldRequested(m *transport.Master, hold string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.phase == asking && hold == v.id {
		v.ballot.Vote(m.Index).YieldRequested()
		v.perform(v.ballot.Next(nil))
	}
}

// handoff is a grant to a waiter, as a message reports it. No request was under way for it, so no request bounds its
// age from below. handoffTrust computes that bound from the server's clock.
type handoff struct {
	hold      string
	token     fencing.Token
	grantedAt int64 // by the server's clock, in microseconds
	ttl       time.Duration
	server    string        // the process that granted it
	first     fencing.Token // of the block of a shared hold, or 0
	wanted    bool          // the shared hold is contended
}

// readHandoff parses the fields of a message. Any client with the rights to publish can have sent it, so a message that
// a script would not write is not a hand-off.
func readHandoff(f []string) (g handoff, ok bool) {
	if len(f) != 5 && len(f) != 7 {
		return g, false
	}
	var n [5]int64
	for i, text := range append(f[1:4:4], f[5:]...) {
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil || n[i] < 0 {
			return g, false
		}
	}
	g = handoff{
		hold: f[0], token: fencing.Token(n[0]), grantedAt: n[1], ttl: time.Duration(n[2]) * time.Millisecond, server: f[4],
		first: fencing.Token(n[3]), wanted: n[4] > 0,
	}
	return g, n[0] > 0 && isToken(n[0])
}

// handedOff counts a grant to a waiter. The message may come over another connection before the reply to the very
// request that queued the hold. Then the vote is still asked, and the grant counts all the same. The lease has at least
// so much left as its TTL exceeds the most that can have gone by on the server's clock since the grant. If that is
// unknown, or nothing is left, the waiter asks the master. A waiter that does not know at this moment that it is queued
// there asks as soon as it does.
func (b *mailbox) handedOff(l *Lease, m *transport.Master, from *transport.Node, g handoff) {
	now, v := b.e.clock.Now(), &l.voting
	until, known := v.handoffTrust(m, from, g, now)
	v.mu.Lock()
	defer v.mu.Unlock()
	if g.wanted && g.hold == v.id {
		l.extra.want(&l.mu)
	}
	switch {
	case g.hold != v.id || v.phase == ended:
	case known:
		v.ballot.Vote(m.Index).Block(g.token, g.first)
		v.granted(m, g.token, until)
		v.changed()
	case v.phase == asking && v.ballot.Vote(m.Index).State == ballot.Queued:
		v.e.waiters[m.Index].wake(v.name)
	case v.phase == asking:
		v.asking.notified |= 1 << (m.Index % 64)
	}
}

// handoffTrust returns until when a hand-off is trusted. The sample of the clock has to be of the server that the
// message is from: after a failover the message of the old master may arrive through the new one, which has another
// clock and may have granted the lock to another client. A grant from after the latest time that the clock can show
// means that the clock was set forward since.
//
// A hand-off of a master, one of several, is not trusted if the master's marker is to be read again: the waiter asks.
//
// Too little trust costs a round trip, too much is two holders. So the clock is taken to show the latest time that it
// can, by the last sample and the drift, and a message that was long under way grants what is left and no more.
func (v *voting) handoffTrust(
	m *transport.Master, from *transport.Node, g handoff, now clock.Instant,
) (clock.Instant, bool) {
	latest, known := m.ServerAtMost(v.key.lock(), from, g.server, now)
	left := g.ttl - time.Duration(max(latest-g.grantedAt, 0))*time.Microsecond
	if !known || left <= 0 || g.grantedAt > latest || !m.Identified() {
		return clock.Instant{}, false
	}
	return v.e.drift.Trusted(now, left), true
}

package engine

import (
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// route returns how messages about this lock reach this engine, in the form of a hold's details. A route that begins
// with b says that the count of receivers shows nothing, so the master does not pass over the waiter. With several
// masters the result is such a route until the engine listens to each of them.
func (e *Engine) route(lock string) (route string) {
	for _, m := range e.masters {
		if route = m.Route(lock); route[0] == 'b' {
			break
		}
	}
	return route
}

// onMessage handles a message of a master. `hold token us ttl server` is a hand-off; for a shared hold, `first waiting`
// follows: the first token of its block, and how many waiters want it. `hold` alone reports that a hold that comes
// first waits behind it. `hold wanted` reports that a waiter wants a shared hold. A message reports what the next
// refresh or renewal would report later, so a lost message costs time and nothing else. A message about the hold of
// another client is ignored.
func (e *Engine) onMessage(m *transport.Master, from *transport.Node, text string) {
	f := strings.Fields(text)
	if len(f) == 0 {
		return
	}
	l := e.registry.lookup(f[0])
	switch g, isHandoff := readHandoff(f); {
	case l == nil:
	case len(f) == 1:
		l.yieldRequested(m, f[0])
	case len(f) == 2:
		l.hearContended(f[0])
	case isHandoff:
		l.handedOff(m, from, g)
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
	contended bool          // the shared hold is
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
		first: fencing.Token(n[3]), contended: n[4] > 0,
	}
	return g, n[0] > 0 && isToken(n[0])
}

// handedOff counts a grant to a waiter. The message may come over another connection before the reply to the very
// request that queued the hold. Then the vote is still asked, and the grant counts all the same. The lease has at least
// so much left as its TTL exceeds the most that can have gone by on the server's clock since the grant. If that is
// unknown, or nothing is left, the waiter asks the master. A waiter that does not know at this moment that it is queued
// there asks as soon as it does.
func (l *Lease) handedOff(m *transport.Master, from *transport.Node, g handoff) {
	until, known := l.handoffTrust(m, from, g, l.e.clock.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.contended && g.hold == l.id {
		l.setContended()
	}
	switch {
	case g.hold != l.id || l.phase == ended:
	case known:
		l.ballot.Vote(m.Index).Block(g.token, g.first)
		l.granted(m, g.token, until)
		l.changed()
	case l.phase == asking && l.ballot.Vote(m.Index).State == ballot.Queued:
		l.e.waiters[m.Index].wake(l.name)
	case l.phase == asking:
		l.asking.notified |= 1 << (m.Index % 64)
	}
}

// handoffTrust returns until when a hand-off is trusted. The sample of the clock has to be of the server that the
// message is from: after a failover the message of the old master may arrive through the new one, which has another
// clock and may have granted the lock to another client. A grant from after the latest time that the clock can show
// means that the clock was set forward since.
//
// A hand-off of a master, one of several, is not trusted if the master's marker is to be read again: the waiter asks.
//
// Too little trust costs a round trip, too much is two holders. By the last sample the server's clock read at most s
// when that request was sent, so now it reads at most s + (1 + drift) x (time since, by the clock that ran further).
// That is taken for its time, and a message that was long under way grants what is left and no more.
func (v *voting) handoffTrust(
	m *transport.Master, from *transport.Node, g handoff, now clock.Instant,
) (clock.Instant, bool) {
	latest, known := m.MaxServerTime(v.key.lock(), from, g.server, now)
	left := g.ttl - time.Duration(max(latest-g.grantedAt, 0))*time.Microsecond
	if !known || left <= 0 || g.grantedAt > latest || !m.Identified() {
		return clock.Instant{}, false
	}
	return v.e.drift.Trusted(now, left), true
}

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

// replicated reports whether grants count only once replicas have them. Then an operation that makes or keeps a lease
// counts only once that many replicas have it. An acquire, a raise and a regain are followed by WAIT, and so is every
// renewal, because the deadline would otherwise move past the expiry that a replica knows. A grant from the queue was
// written by another process. Its first renewal is a later write on the same server by this process, so the WAIT after
// that renewal covers both. A master whose replicas do not confirm does not count, and is released.
func (e *Engine) replicated() bool { return e.cfg.Replicas > 0 }

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

// onListen is called when messages of a node arrive from now on, or of all nodes if the node is nil. Earlier messages
// did not arrive here, so every possible recipient asks: the waiters, and the holders of shared holds.
func (e *Engine) onListen(m *transport.Master, _ *transport.Node) {
	for _, l := range e.registry.snapshot() { // first: a hold that is granted after this has missed no message
		l.mu.Lock()
		l.pollContended()
		l.mu.Unlock()
	}
	e.waiters[m.Index].wakeAll()
}

// onMoved is called when other servers answer for some keys of the master. They may not have the requests that the
// servers before them answered, so the waiters ask again, and recent releases are sent again.
func (e *Engine) onMoved(m *transport.Master) {
	e.releases[m.Index].repeat()
	e.waiters[m.Index].wakeAll()
}

// onSubscribeFailed is called when messages of a node are not available, once until they are available again. Its
// waiters ask at an interval instead.
func (e *Engine) onSubscribeFailed(m *transport.Master, n *transport.Node, err error) {
	observers := &e.observers
	observers.warn("pub/sub unavailable; waiters poll, which costs more and takes longer",
		slog.String("master", n.Addr()), slog.Any("error", err))
	if hook := observers.hooks.NoMessages; hook != nil {
		observers.relay.Offer(func() { hook(n.Addr(), err) })
	}
	e.waiters[m.Index].wakeAll()
}

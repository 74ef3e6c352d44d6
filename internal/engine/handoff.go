package engine

import (
	"log/slog"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// route returns how messages about this lock reach this engine. With several masters the route is uncounted until the
// engine listens to each of them.
func (e *Engine) route(lock string) (route wire.Route) {
	for _, m := range e.masters {
		if route = m.Route(lock); route.IsUncounted() {
			break
		}
	}
	return route
}

// onMessage handles a message of a master. A message reports what the next refresh or renewal would report later, so a
// lost message costs time and nothing else. A message about the hold of another client is ignored, and a hand-off to a
// hold that this process has given up is answered by its release.
func (e *Engine) onMessage(m *transport.Master, from *transport.Node, text string) {
	message := wire.ReadMessage(text)
	if message == nil {
		return
	}
	h := e.registry.lookup(message.About())
	if h == nil {
		if grant, is := message.(wire.Handoff); is {
			e.releases[m.Index].handedOff(grant.Hold)
		}
		return
	}
	switch message := message.(type) {
	case wire.Handoff:
		h.handedOff(m, from, message)
	case wire.YieldRequest:
		h.yieldRequested(m, message.Hold)
	case wire.Contended:
		h.hearContended(message.Hold)
	case wire.BreakNotice:
		h.hearBroken(message)
	}
}

// yieldRequested offers the master's grant to a hold that comes first. A hold that is already held does not yield: it
// stands on a quorum, so the other hold cannot have a quorum before the release.
func (h *hold) yieldRequested(m *transport.Master, id string) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.phase == asking && id == h.id {
		h.ballot.Vote(m.Index).YieldRequested()
		h.perform(h.ballot.Next(nil))
	}
}

// handedOff counts a grant to a waiter. The message may come over another connection before the reply to the very
// request that queued the hold. Then the vote is still asked, and the grant counts all the same. The lease has at least
// so much left as its TTL exceeds the most that can have gone by on the server's clock since the grant. If that is
// unknown, or nothing is left, the waiter asks the master. A waiter that does not know at this moment that it is queued
// there asks as soon as it does.
func (h *hold) handedOff(m *transport.Master, from *transport.Node, g wire.Handoff) {
	until, known := h.handoffTrust(m, from, g, h.e.clock.Now())
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if g.Contended && g.Hold == h.id {
		h.setContended()
	}
	switch {
	case g.Hold != h.id || h.phase == ended:
	case known:
		h.ballot.Vote(m.Index).Block(g.Token, g.First)
		h.granted(m, g.Token, until)
		h.changed(m)
	case h.phase == asking && h.ballot.Vote(m.Index).State == ballot.Queued:
		h.e.waiters[m.Index].wake(h.name)
	case h.phase == asking:
		h.asking.notified |= 1 << (m.Index % 64)
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
func (h *hold) handoffTrust(
	m *transport.Master, from *transport.Node, g wire.Handoff, now clock.Instant,
) (clock.Instant, bool) {
	latest, known := m.MaxServerTime(h.key.LockHash(), from, g.Server, now)
	left := g.TTL - time.Duration(max(latest-g.GrantedAt, 0))*time.Microsecond
	if !known || left <= 0 || g.GrantedAt > latest || !m.Identified() {
		return clock.Instant{}, false
	}
	return h.e.drift.Trusted(now, left), true
}

// granted counts a grant that a message or a refresh reported, under mu: at once, or when it is confirmed. A vote has
// at most one confirmation under way. A later grant is confirmed when the next refresh reports it.
func (h *hold) granted(m *transport.Master, token fencing.Token, until clock.Instant) {
	vote := h.ballot.Vote(m.Index)
	if !h.e.confirmsHandOff() {
		vote.Granted(token, until)
		return
	}
	if !vote.Confirming(token) {
		return
	}
	id := h.id
	// A millisecond more than the TTL, because an unchanged expiry would not be a write.
	ttl := wire.FormatMillis(max(h.terms.TTL, h.keeping.minimumLeft()) + time.Millisecond)
	renewal := &transport.Renewal{
		Renewal: wire.Renewal{
			Key: h.key, Hold: id, TTL: ttl, Token: token,
		},
		Deadline: until,
		Done:     func(renewed bool, err error, sent clock.Instant) { h.confirmed(m, id, token, renewed, err, sent) },
	}
	h.lease.mu.afterUnlock(func() { m.Renew(renewal) })
}

// replicated reports whether grants count only once replicas have them. Then an operation that makes or keeps a lease
// counts only once that many replicas have it. An acquire, a raise and a regain are followed by WAIT, and so is every
// renewal, because the deadline would otherwise move past the expiry that a replica knows. A master whose replicas do
// not confirm does not count, and is released.
func (e *Engine) replicated() bool { return e.cfg.Replicas > 0 }

// confirmsHandOff reports whether a grant that another request has brought about is confirmed before it counts. Nothing
// shows until then that the grant will last: a server may send the message, and answer a script that only reads, before
// its durable log has the grant. The first renewal of the hold is a later write on the same server. With replicas, the
// WAIT after it covers both writes. A server with a durable log answers it once the log has both. The renewal names the
// token, so a server that took over without the grant does not confirm it.
func (e *Engine) confirmsHandOff() bool { return e.replicated() || e.cfg.ConfirmHandOff }

// confirmed applies the answer to the renewal of such a grant. A renewal without an answer may have moved the expiry on
// the server, or may do so later, also after the lease has begun by another confirmation.
func (h *hold) confirmed(
	m *transport.Master, id string, token fencing.Token, renewed bool, err error, sent clock.Instant,
) {
	answer := ballot.Answer{Status: ballot.IsAbsent}
	switch {
	case err != nil:
		answer = h.e.noAnswer(m, err)
	case renewed:
		answer = ballot.Answer{Status: ballot.IsGranted, Token: token, Until: h.e.drift.Trusted(sent, h.terms.TTL)}
	}
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	h.keeping.noteUnanswered(err, h.terms.TTL, h.e.clock.Now())
	if id != h.id || h.phase == ended {
		return
	}
	if by, broken := err.(*Breaker); broken {
		h.broken(by)
		return
	}
	h.ballot.Vote(m.Index).Confirmed(token, answer)
	h.changed(m)
}

// onListen is called when messages of a node arrive from now on, or of all nodes if the node is nil. Earlier messages
// did not arrive here, so every possible recipient asks: the waiters, and the holders of shared holds.
func (e *Engine) onListen(m *transport.Master, _ *transport.Node) {
	for _, h := range e.registry.snapshot() { // first: a hold that is granted after this has missed no message
		h.lease.mu.Lock()
		h.keeping.poll()
		h.lease.mu.Unlock()
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

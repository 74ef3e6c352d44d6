package engine

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/masterset"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// onMessage handles a message of a master. A message reports what the next refresh or renewal would report later, so a
// lost message costs time and nothing else. A message about the hold of another client is ignored, and a hand-off to a
// hold that this process has given up is answered by its release.
func (e *Engine) onMessage(m *transport.Master, from *transport.Node, text string) {
	id, message := wire.ReadMessage(text)
	h := e.registry.lookup(id)
	if h == nil {
		if _, is := message.(wire.Handoff); is {
			e.releases[m.Index].HandedOff(id)
		}
		return
	}
	if !h.current(id) {
		return
	}
	defer h.lease.mu.Unlock()
	switch message := message.(type) {
	case wire.Handoff:
		voter{h, m}.handedOff(from, message)
	case wire.YieldRequest:
		h.step(hold.Event{Kind: hold.Wanted, Master: m.Index})
	case wire.Contended:
		h.setContended()
	case wire.BreakNotice:
		h.step(hold.Event{Kind: hold.Broken, By: message.By, Keeps: !message.By.Now})
	}
}

// voter reads what one master says of one hold: its answers and its messages.
type voter struct {
	h *driver
	m *transport.Master
}

// holdReader reads the reply of one of the scripts about one hold.
type holdReader func(rueidis.RedisResult) (wire.HoldReply, error)

// readHold reads a reply. If it is a grant that too few replicas have, the error says so, and the reply is the grant.
func readHold(r rueidis.RedisResult, read holdReader) (wire.HoldReply, error) {
	reply, err := read(r)
	if err == nil {
		return reply, nil
	}
	short, ok := lockerr.AsUnreplicated(err)
	if !ok || transport.DidNotRun(err) {
		return reply, err
	}
	reply, err = read(short.Reply)
	if err == nil && reply.Status == wire.Granted { // other replies wrote nothing that counts
		err = short
	}
	return reply, err
}

// answer converts the reply to an answer for the ballot. sent is the time just before the request left. It is the only
// place that knows both the statuses of the scripts and the statuses of the ballot, so the ballot does not depend on
// the scripts.
func (v voter) answer(reply wire.HoldReply, err error, sent clock.Instant) ballot.Answer {
	e, h, m := v.h.e, v.h, v.m
	m.Sample(h.key, sent, reply.Micros)
	if err != nil {
		return e.noAnswer(m, err)
	}
	if len(e.masters) > 1 {
		e.tokens.Answered(e.clock.Now().Mono - sent.Mono)
	}
	switch reply.Status {
	case wire.Granted:
		left := min(reply.Left, h.terms.TTL) // a minimum is no reason for trust
		return ballot.Answer{Status: ballot.IsGranted, Token: reply.Token, Until: e.drift.Trusted(sent, left)}
	case wire.Queued:
		return ballot.Answer{Status: ballot.IsQueued}
	case wire.Absent:
		return ballot.Answer{Status: ballot.IsAbsent}
	case wire.OnlyReads:
		return ballot.Answer{Status: ballot.IsReading}
	case wire.Rival:
		return ballot.Answer{Status: ballot.IsRival}
	case wire.Abstains, wire.Changed:
		// An abstention is not a vote, and reports when to ask again. If it has no time, or a time that no client of
		// this set can have caused, the marker has to be read again.
		if reply.Left == 0 || reply.Left > masterset.Quarantine(e.cfg.LongestTTL) {
			e.masterSet.Recheck()
		}
		abstains := &lockerr.Abstaining{For: reply.Left, Err: e.masterSet.Defect(m.Index)}
		return ballot.Answer{Status: ballot.NoAnswer, Err: abstains}
	case wire.ClockAhead:
		// Case floor-no-bound of the model: without that refusal one master with a clock that is ahead pulls all tokens
		// to its clock.
		return ballot.Answer{Status: ballot.IsRefused, Err: lockerr.ErrServerClock}
	default: // refused, or released before the request arrived
		return ballot.Answer{Status: ballot.IsRefused}
	}
}

// noAnswer returns the ballot's answer for a call that failed: whether the request may have run, so that a release has
// to follow it; whether asking again can help; and the cause. A grant that too few replicas have stands on the master:
// it is released, and asking again would find it again.
func (e *Engine) noAnswer(m *transport.Master, err error) ballot.Answer {
	if transport.StaleMarker(err) {
		e.masterSet.Recheck()
	}
	_, short := lockerr.AsUnreplicated(err)
	return ballot.Answer{
		Status: ballot.NoAnswer, Err: m.Explain(err), Unknown: !transport.DidNotRun(err), Short: short,
		Permanent: short || m.Permanent(err), Conflict: transport.Conflict(err),
	}
}

// handedOff counts a grant to a waiter, under mu. The message may come over another connection before the reply to the
// very request that queued the hold. Then the vote is still asked, and the grant counts all the same. The lease has at
// least so much left as its TTL exceeds the most that can have gone by on the server's clock since the grant. If that
// is unknown, or nothing is left, the waiter asks the master. A waiter that does not know at this moment that it is
// queued there asks as soon as it does.
func (v voter) handedOff(from *transport.Node, g wire.Handoff) {
	h, m := v.h, v.m
	if g.Contended {
		h.setContended()
	}
	e := hold.Event{Kind: hold.Heard, Master: m.Index, First: g.First}
	if until, known := v.handoffTrust(from, g, h.e.clock.Now()); known {
		e.Kind, e.Answer = hold.Told, ballot.Answer{Status: ballot.IsGranted, Token: g.Token, Until: until}
	}
	h.step(e)
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
func (v voter) handoffTrust(from *transport.Node, g wire.Handoff, now clock.Instant) (clock.Instant, bool) {
	h, m := v.h, v.m
	latest, known := m.MaxServerTime(h.key, from, g.Server, now)
	left := g.TTL - time.Duration(max(latest-g.GrantedAt, 0))*time.Microsecond
	if !known || left <= 0 || g.GrantedAt > latest || !m.Identified() {
		return clock.Instant{}, false
	}
	return h.e.drift.Trusted(now, left), true
}

// onListen is called when messages of a node arrive from now on, or of all nodes if the node is nil. Earlier messages
// did not arrive here, so every possible recipient asks: the waiters, and the holders of shared holds.
func (e *Engine) onListen(m *transport.Master, _ *transport.Node) {
	for h := range e.registry.each { // first: a hold that is granted after this has missed no message
		h.lease.mu.Lock()
		h.poll()
		h.lease.mu.Unlock()
	}
	e.waiters[m.Index].wakeAll()
}

// onMoved is called when other servers answer for some keys of the master, after a failover, say. They may lack what
// the servers before them have answered, so the waiters ask again, and recent releases are sent again.
func (e *Engine) onMoved(m *transport.Master) {
	e.releases[m.Index].Repeat()
	e.waiters[m.Index].wakeAll()
}

// onSubscribeFailed is called once when the messages of a node stop. Until they come again its waiters ask at an
// interval.
func (e *Engine) onSubscribeFailed(m *transport.Master, n *transport.Node, err error) {
	observers := &e.observers
	observers.warnOfServer("pub/sub unavailable; waiters poll, which costs more and takes longer", n, err)
	if hook := observers.hooks.NoMessages; hook != nil {
		observers.relay.Offer(func() { hook(n.Addr(), err) })
	}
	e.waiters[m.Index].wakeAll()
}

package engine

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/masterset"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// hold is one attempt at a lock and the votes of the masters on it, from the first request until all that the masters
// have is released. An acquisition acts on the votes before the hold is granted, and a lease after that. Thousands of
// holds exist at once, so a hold has only what a lease needs: fields that only asking needs are in acquisition, and
// fields that few holds need are in extra.
type hold struct {
	e      *Engine
	id     string // a ULID; each attempt has its own
	name   string // of the lock
	key    wire.LockKey
	terms  *Terms
	extra  *extra        // nil for most
	begun  time.Duration // start of the first attempt, by the monotonic clock
	mu     guard         // guards the hold, its acquisition and its lease
	ballot ballot.Ballot
	asking *acquisition // the acquisition; nil once it is over
	mode   fencing.Mode
	phase  phase

	unobserved bool // the hooks were not notified of the beginning
}

// extra has the fields that few holds need.
type extra struct {
	owner      string        // a ULID that the caller named, or ""
	claimed    fencing.Token // of the hold that a Join is for, or 0
	shared     sharedHold
	withdrawal *withdrawal // of a conversion of a shared hold to this one
}

// owner returns the owner's ULID. If the caller named none, it is the hold's id, and no hold can join it.
func (h *hold) owner() string {
	if named := h.namedOwner(); named != "" {
		return named
	}
	return h.id
}

// namedOwner returns "" if the caller named no owner.
func (h *hold) namedOwner() string {
	if h.extra == nil {
		return ""
	}
	return h.extra.owner
}

// block returns how many tokens a shared hold asks for; 0 for all other holds.
func (h *hold) block() int {
	if h.extra == nil {
		return 0
	}
	return h.extra.shared.block
}

// details returns what a master stores of the hold unchanged.
func (h *hold) details(route wire.Route, converts string) string {
	return wire.Details{
		Mode: h.mode, HandoffTTL: h.terms.handoffArg, Owner: h.namedOwner(), Block: h.block(), Converts: converts,
		Route: route, Meta: h.terms.Meta,
	}.Text()
}

// phase is the phase of a hold. It only moves forward.
type phase uint8

// A hold is asking also while it waits in the queue. Both end with the same verdict.
const (
	asking phase = iota
	held
	ended
)

// token returns the token that the hold was granted with, 0 before.
func (h *hold) token() fencing.Token {
	if h.phase == asking {
		return 0
	}
	return h.ballot.Target()
}

// event describes the hold as it is now, under mu.
func (h *hold) event() Event {
	return Event{h.name, h.mode, h.owner(), h.id, h.token(), h.e.clock.Now().Mono - h.begun}
}

// changed acts on a vote that has changed, under mu. While the hold is asking, the change may decide the verdict. After
// that only actions follow: the lease has its token, and no late answer of a master revokes it.
func (h *hold) changed() {
	if h.asking != nil {
		h.asking.decide()
	} else {
		h.perform(h.ballot.Next(nil))
	}
}

// What follows is for several masters: the operations that a ballot asks for, sent through the pipelines.

// perform sends the operations that the ballot asks for, under mu.
func (h *hold) perform(actions []ballot.Action) {
	if len(actions) == 0 {
		return
	}
	proposal := h.e.tokens.proposal() // one for all masters, so that their answers agree
	for _, action := range actions {
		m := h.e.masters[action.Master]
		call := transport.Call{Vote: m.Vote(proposal)}
		// A ballot asks for a raise or a yield. Renewals and regains belong to the lease.
		if action.Op == ballot.Yield {
			call.Script, call.Args = h.e.scriptsOf(m).yield, wire.Yield{Hold: h.id, Token: action.Token}.Args(nil)
			h.post(m, call, wire.ReadYield, func(r wire.HoldReply, a ballot.Answer, err error) {
				h.yielded(m, action.Token, r, a, err)
			})
		} else {
			call.Script, call.Args = h.e.scriptsOf(m).raise, wire.Raise{Hold: h.id, Token: action.Token}.Args(nil)
			h.post(m, call, wire.ReadRaise, func(_ wire.HoldReply, a ballot.Answer, _ error) {
				h.raised(m, action.Token, a)
			})
		}
	}
}

// post sends a call for this hold, under mu. counted gets the answer under mu, unless the hold was given up. The call
// is sent when mu is unlocked.
func (h *hold) post(
	m *transport.Master, call transport.Call, read holdReader, counted func(wire.HoldReply, ballot.Answer, error),
) {
	// An answer counts for the hold that it was requested for. The acquisition may have given up that hold since.
	id := h.id
	call.Keys, call.Urgent, call.Replicated = h.e.keys.ForCall(h.key), true, true
	call.Done = func(r rueidis.RedisResult, sent clock.Instant) {
		reply, err := readHold(r, read)
		a := h.e.answer(m, h.key.Lock(), reply, err, sent)
		h.mu.Lock()
		defer h.mu.Unlock()
		if id == h.id && h.phase != ended {
			counted(reply, a, err)
		}
	}
	h.mu.afterUnlock(func() { m.Post(call) })
}

// raised counts the answer to a raise, under mu. The raise is a vote for the target only if the master itself answers
// that it has counted the target (case raise-unheld: a raise of a hold that was gone counted a vote that was never
// kept).
func (h *hold) raised(m *transport.Master, target fencing.Token, a ballot.Answer) {
	h.ballot.Vote(m.Index).Raised(target, a)
	if h.asking != nil {
		h.asking.decide()
	}
}

// yielded counts the answer to a yield, under mu. The master may have kept the grant, with a new token, or may have
// granted the hold again at once. If the grant went to an older hold, this hold waits behind it.
func (h *hold) yielded(m *transport.Master, token fencing.Token, r wire.HoldReply, a ballot.Answer, err error) {
	h.ballot.Vote(m.Index).Yielded(token, a)
	h.ballot.Vote(m.Index).Block(r.Token, r.First)
	if acquisition := h.asking; acquisition != nil {
		acquisition.decide()
		if h.phase == asking {
			acquisition.enqueue(m, r.Left, err)
		}
	}
}

// holdReader reads the reply of one of the scripts about one hold.
type holdReader func(rueidis.RedisResult) (wire.HoldReply, error)

// readHold reads a reply. A grant that too few replicas have is the error of the replicas, with the reply.
func readHold(r rueidis.RedisResult, read holdReader) (wire.HoldReply, error) {
	reply, err := read(r)
	short, ok := unreplicated(err)
	if !ok || transport.DidNotRun(err) {
		return reply, err
	}
	reply, err = read(short.Reply)
	if err == nil && reply.Status == wire.Granted { // other replies wrote nothing that counts
		err = short
	}
	return reply, err
}

// answer converts the reply to an answer for the ballot. sent is the time just before the request left, lock is its
// first key. It is the only place that knows both the statuses of the scripts and the statuses of the ballot, so the
// ballot does not depend on the scripts.
func (e *Engine) answer(
	m *transport.Master, lock string, reply wire.HoldReply, err error, sent clock.Instant,
) ballot.Answer {
	m.Sample(lock, sent, reply.Micros)
	if err != nil {
		return e.noAnswer(m, err)
	}
	if len(e.masters) > 1 {
		e.tokens.observeRoundTrip(min(e.clock.Now().Mono-sent.Mono, time.Second/2))
	}
	switch reply.Status {
	case wire.Granted:
		return ballot.Answer{Status: ballot.IsGranted, Token: reply.Token, Until: e.drift.Trusted(sent, reply.Left)}
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
		return ballot.Answer{Status: ballot.NoAnswer, Err: &Abstaining{reply.Left, e.masterSet.Defect(m.Index)}}
	case wire.ClockAhead:
		// Case floor-no-bound of the model: without that refusal one master with a clock that is ahead pulls all tokens
		// to its clock.
		return ballot.Answer{Status: ballot.IsRefused, Err: ErrServerClock}
	default: // refused, or released before the request arrived
		return ballot.Answer{Status: ballot.IsRefused}
	}
}

// noAnswer returns the ballot's answer for a call that failed. It distinguishes whether the request may have run (then
// a release has to follow it), whether asking again can help, and the cause of the failure. A grant that too few
// replicas have stands on the master, so it has to be released, and asking again would find the same grant.
func (e *Engine) noAnswer(m *transport.Master, err error) ballot.Answer {
	if transport.Unread(err) {
		e.masterSet.Recheck()
	}
	_, short := unreplicated(err)
	return ballot.Answer{
		Status: ballot.NoAnswer, Err: m.Explain(err), Unknown: !transport.DidNotRun(err), Short: short,
		Permanent: short || m.Permanent(err), Conflict: transport.Conflict(err),
	}
}

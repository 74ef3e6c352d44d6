package engine

import (
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// hold is one attempt at a lock, as the masters know it. Thousands are held at once, so it has only what a lease needs:
// fields that only asking needs are in acquisition, and fields that few holds need are in extra.
type hold struct {
	id    string // a ULID; each attempt has its own
	name  string // of the lock
	key   lockKey
	terms *Terms
	extra *extra        // nil for most
	begun time.Duration // start of the first attempt, by the monotonic clock
	mode  fencing.Mode
	phase phase

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

// details returns what a master stores of the hold unchanged: mode, hand-off TTL, owner, route to its process, meta.
// The owner is "-" if it is the hold itself, "+B" if the hold is also shared and asks for B tokens, and is followed by
// "^hold" if that hold is converted.
func (h *hold) details(route, converts string) string {
	owner := "-"
	switch named := h.namedOwner(); {
	case h.block() > 0:
		owner = "+" + strconv.Itoa(h.block())
	case named != "":
		owner = named
	}
	if converts != "" {
		owner += "^" + converts
	}
	return modeArg(h.mode) + " " + h.terms.handoffArg + " " + owner + " " + route + " " + h.terms.Meta
}

// phase is the phase of a hold. It only moves forward.
type phase uint8

// A hold is asking also while it waits in the queue. Both end with the same verdict.
const (
	asking phase = iota
	held
	ended
)

// voting is a hold and the votes of the masters on it, from the first request until all that the masters have is
// released. An acquisition acts on the votes before the hold is granted, and a lease after that.
type voting struct {
	hold
	e      *Engine
	mu     guard // guards the voting, its acquisition and its lease
	ballot ballot.Ballot
	asking *acquisition // the acquisition; nil once it is over
}

// token returns the token that the hold was granted with, 0 before.
func (v *voting) token() fencing.Token {
	if v.phase == asking {
		return 0
	}
	return v.ballot.Target()
}

// event describes the hold as it is now, under mu.
func (v *voting) event() Event {
	return Event{v.name, v.mode, v.owner(), v.id, v.token(), v.e.clock.Now().Mono - v.begun}
}

// changed acts on a vote that has changed, under mu. While the hold is asking, the change may decide the verdict. After
// that only actions follow: the lease has its token, and no late answer of a master revokes it.
func (v *voting) changed() {
	if v.asking != nil {
		v.asking.decide()
	} else {
		v.perform(v.ballot.Next(nil))
	}
}

// What follows is for several masters: the operations that a ballot asks for, sent through the pipelines.

// perform sends the operations that the ballot asks for, under mu.
func (v *voting) perform(actions []ballot.Action) {
	if len(actions) == 0 {
		return
	}
	proposal := v.e.tokens.proposal() // one for all masters, so that their answers agree
	for _, action := range actions {
		m := v.e.masters[action.Master]
		token := tokenArg(action.Token)
		// A ballot asks for a raise or a yield. Renewals and regains belong to the lease.
		script, counted := v.e.scriptsOf(m).raise, v.raised
		if action.Op == ballot.Yield {
			script, counted = v.e.scriptsOf(m).yield, v.yielded
		}
		v.post(m, script, []string{m.Vote(proposal), v.id, token}, func(p reply, a ballot.Answer) {
			counted(m, action.Token, p, a)
		})
	}
}

// post sends a call for this hold, under mu. counted gets the answer under mu, unless the hold was given up. The call
// is sent when mu is unlocked.
func (v *voting) post(m *transport.Master, s *transport.Script, args []string, counted func(reply, ballot.Answer)) {
	// An answer counts for the hold that it was requested for. The acquisition may have given up that hold since.
	id := v.id
	call := transport.Call{Script: s, Keys: v.e.keys.forCall(v.key), Args: args, Urgent: true, Replicated: true}
	call.Done = func(r rueidis.RedisResult, sent clock.Instant) {
		p := readReply(r)
		a := v.e.answer(m, v.key.lock(), false, p, sent)
		v.mu.Lock()
		defer v.mu.Unlock()
		if id == v.id && v.phase != ended {
			counted(p, a)
		}
	}
	v.mu.afterUnlock(func() { m.Post(call) })
}

// raised counts the answer to a raise, under mu. The raise is a vote for the target only if the master itself answers
// that it has counted the target (case raise-unheld: a raise of a hold that was gone counted a vote that was never
// kept). A master that does not have the hold any more answers that it is queued or unknown. In both cases the hold is
// not raised there.
func (v *voting) raised(m *transport.Master, target fencing.Token, p reply, a ballot.Answer) {
	if p.err == nil && p.status == statusQueued {
		a.Status = ballot.IsRefused
	}
	v.ballot.Vote(m.Index).Raised(target, a)
	if v.asking != nil {
		v.asking.decide()
	}
}

// yielded counts the answer to a yield, under mu. The master may have kept the grant, with a new token, or may have
// granted the hold again at once. If the grant went to an older hold, this hold waits behind it.
func (v *voting) yielded(m *transport.Master, token fencing.Token, p reply, a ballot.Answer) {
	if p.err == nil && p.status == statusRefused {
		a.Status = ballot.IsAbsent
	}
	v.ballot.Vote(m.Index).Yielded(token, a)
	v.ballot.Vote(m.Index).Block(p.token, p.first)
	if acquisition := v.asking; acquisition != nil {
		acquisition.decide()
		if v.phase == asking {
			acquisition.enqueue(m, p.left, p.err)
		}
	}
}

package engine

import (
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// phase is where a hold is in its life; it only moves forward.
type phase uint8

// A hold that is asked for is asking also while it waits in the queue: both end by the same verdict.
const (
	asking phase = iota
	held
	ended
)

// voting is a hold and the votes of the masters on it, from the first request until whatever they have is released. An
// acquisition acts on the votes before the hold is granted, a lease after.
type voting struct {
	hold
	e      *Engine
	mu     guard // of the voting, its acquisition and its lease
	ballot ballot.Ballot
	asking *acquisition // nil once it is over
}

// token is what the hold was granted with, 0 before.
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

// changed acts on a vote that has changed, under mu. While the hold is asked for, that may be the verdict. After that
// only actions follow: the lease has its token, and whatever a late master says does not take it back.
func (v *voting) changed() {
	if v.asking != nil {
		v.asking.decide()
	} else {
		v.perform(v.ballot.Next(nil))
	}
}

// What follows is for several masters: the operations that a ballot asks for, sent through the pipelines.

// perform sends what the ballot asks for, under mu.
func (v *voting) perform(actions []ballot.Action) {
	if len(actions) == 0 {
		return
	}
	proposal := v.e.tokens.proposal() // one for all masters: their answers are to agree
	for _, action := range actions {
		m := v.e.masters[action.Master]
		token := tokenArg(action.Token)
		// A ballot asks for a raise or a yield; renewals and regains are the lease's own.
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
// leaves when mu is given back.
func (v *voting) post(m *transport.Master, s *transport.Script, args []string, counted func(reply, ballot.Answer)) {
	// An answer is counted for the hold that it was asked for. The acquisition may have given that one up meanwhile.
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

// raised counts the answer to a raise, under mu. Only the master's own word that it has counted the target makes it a
// vote for it (case raise-unheld: a raise where the hold is gone counted a vote that was never kept). A master that
// does not have the hold any more says that it is queued or unknown; either way it is not raised there.
func (v *voting) raised(m *transport.Master, target fencing.Token, p reply, a ballot.Answer) {
	if p.err == nil && p.status == statusQueued {
		a.Status = ballot.IsRefused
	}
	v.ballot.Vote(m.Index).Raised(target, a)
	if v.asking != nil {
		v.asking.decide()
	}
}

// yielded counts the answer to a yield, under mu. The grant may have been kept, with a new token, or come back at once;
// if it went to an older hold, this one waits behind it.
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

// regain has masters that lost the hold take it back, with its token, under mu. A quorum has confirmed just now that
// the hold stands; the masters see to it that nothing else was counted (case regain-counted). It is worth the trouble:
// without it a quorum of three that loses one master after the other, each for a moment, loses the lease as well,
// though at no time more than one was away.
func (v *voting) regain(now clock.Instant) {
	details := ""
	for _, m := range v.e.masters {
		trusted, ok := v.ballot.Vote(m.Index).Regaining(v.token(), now)
		if !ok {
			continue
		}
		// A master that abstains takes the hold back only where trust in its own grant was never broken: then nobody
		// else can have been let in there, whatever it has forgotten.
		if details == "" {
			details = v.details(v.e.mailbox.route(v.key.lock()), "")
		}
		unbroken := "0"
		if trusted {
			unbroken = "1"
		}
		args := []string{m.Vote(v.e.tokens.proposal()), v.id, v.terms.ttlArg, tokenArg(v.token()), details, unbroken}
		v.post(m, v.e.scriptsOf(m).regain, args, func(p reply, a ballot.Answer) {
			if p.err == nil && p.status != statusGranted {
				a.Status = ballot.IsAbsent
			}
			v.ballot.Vote(m.Index).Regained(v.token(), a)
		})
	}
}

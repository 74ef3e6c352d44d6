package engine

import (
	"strconv"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// What only several masters need: the operations that a ballot asks for, sent through the pipelines.

// perform sends what the ballot asks for, under mu.
func (l *Lease) perform(actions []ballot.Action) {
	if len(actions) == 0 {
		return
	}
	proposal := l.e.proposal() // one for all masters: their answers are to agree
	for _, action := range actions {
		m := l.e.masters[action.Master]
		token := strconv.FormatUint(uint64(action.Token), 10)
		script, counted := l.e.scripts.Load().raise, l.raised
		if action.Op == ballot.Yield {
			script, counted = l.e.scripts.Load().yield, l.yielded
		}
		l.post(m, script, []string{m.Vote(proposal), l.hold, token}, func(p reply, a ballot.Answer) {
			counted(m, action.Token, p, a)
		})
	}
}

// post sends a call for this hold, under mu. counted gets the answer under mu, unless the lease has given the hold up.
func (l *Lease) post(m *transport.Master, s *transport.Script, args []string, counted func(reply, ballot.Answer)) {
	hold := l.hold
	call := transport.Call{Script: s, Keys: l.e.scriptKeys(&l.keys), Args: args, Urgent: true}
	call.Done = func(r rueidis.RedisResult, sent clock.Instant) {
		p := readReply(r)
		a := l.e.answer(m, false, p, sent)
		l.mu.Lock()
		defer l.unlock()
		if hold == l.hold && l.phase != ended {
			counted(p, a)
		}
	}
	l.afterUnlock(func() { m.Post(call) })
}

func (l *Lease) raised(m *transport.Master, target fencing.Token, p reply, a ballot.Answer) {
	if p.err == nil && p.status == statusQueued {
		a.Status = ballot.IsRefused
	}
	l.ballot.Raised(m.Index, target, a)
	if l.asking != nil {
		l.asking.decide()
	}
}

func (l *Lease) yielded(m *transport.Master, token fencing.Token, p reply, a ballot.Answer) {
	if p.err == nil && p.status == statusRefused {
		a.Status = ballot.IsAbsent
	}
	l.ballot.Yielded(m.Index, token, a)
	l.ballot.Block(m.Index, p.token, p.first)
	if acquisition := l.asking; acquisition != nil {
		acquisition.decide()
		if l.phase == asking {
			acquisition.enqueue(m, p.left, p.err)
		}
	}
}

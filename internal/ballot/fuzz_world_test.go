package ballot_test

import (
	"slices"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
)

type op uint8

const (
	opAcquire op = iota
	opRaise
	opYield
	opLeave
	opRefresh
	opRenew
	opRegain
)

// request is one on its way to a master, or its answer on the way back.
type request struct {
	op      op
	token   fencing.Token
	trusted bool
	ran     bool
	answer  ballot.Answer
}

// message tells of a hand-off. Messages come over another connection, in any order.
type message struct {
	master int
	answer ballot.Answer
}

// world is one hold, its masters, and everything between them.
type world struct {
	t        testing.TB
	entry    ballot.Entry
	b        ballot.Ballot
	masters  []simMaster
	requests [][]*request // of each master, in order
	strays   [][]*request // those whose connection broke: they run later or never
	messages []message
	now      time.Duration
	token    fencing.Token // of the lease, 0 before
	over     bool
}

func newWorld(t testing.TB, entry ballot.Entry, masters int) *world {
	w := &world{
		t: t, entry: entry, masters: make([]simMaster, masters), now: time.Hour,
		requests: make([][]*request, masters), strays: make([][]*request, masters),
	}
	w.b.Start(entry, masters)
	return w
}

func (w *world) run(i int, r *request) {
	m := &w.masters[i]
	switch r.op {
	case opAcquire:
		r.answer = m.acquire(w.entry, w.now)
	case opRaise:
		r.answer = m.raise(r.token, w.now)
	case opYield:
		r.answer = m.yield(r.token, w.now)
	case opLeave:
		r.answer = m.leave(r.token, w.now)
	case opRefresh:
		r.answer = m.refresh(w.now)
	case opRenew:
		r.answer = m.renew(r.token, w.now)
	case opRegain:
		r.answer = m.regain(r.token, r.trusted, w.now)
	}
	r.ran = true
}

// answered hands an answer to the ballot, as the engine does.
func (w *world) answered(i int, r *request, a ballot.Answer) {
	switch r.op {
	case opAcquire:
		w.b.Vote(i).Answered(a)
	case opRaise:
		w.b.Vote(i).Raised(r.token, a)
	case opYield, opLeave:
		w.b.Vote(i).Yielded(r.token, a)
	case opRenew:
		w.b.Vote(i).Renewed(r.token, a, instant(w.now))
	case opRegain:
		w.b.Vote(i).Regained(r.token, a)
	case opRefresh:
		if a.Status == ballot.IsGranted {
			w.b.Vote(i).Granted(a.Token, a.Until)
		} else {
			w.b.Vote(i).Refreshed(a)
		}
	}
	w.decide()
}

// send posts a request, of which a vote has at most one under way beside its acquires: the answer to an earlier one may
// still be on its way when the hold has left the master.
func (w *world) send(i int, r *request) {
	for _, other := range w.requests[i] {
		if other.op == r.op && r.op != opAcquire || other.op != opAcquire && other.op != opRefresh && r.op != opRefresh {
			w.t.Fatalf("operation %d is sent while %d is under way", r.op, other.op)
		}
	}
	w.requests[i] = append(w.requests[i], r)
}

// look is the periodic look at a waiting hold.
func (w *world) look(i int) {
	if w.token != 0 {
		return
	}
	switch w.b.Vote(i).State {
	case ballot.Unasked, ballot.Failed:
		if w.entry != ballot.Try || w.b.Vote(i).State == ballot.Unasked {
			w.b.Vote(i).Ask()
			w.send(i, &request{op: opAcquire})
		}
	case ballot.Granted:
		w.perform(w.b.Remind(i, nil))
	case ballot.Queued:
		if !slices.ContainsFunc(w.requests[i], func(r *request) bool { return r.op == opRefresh }) {
			w.send(i, &request{op: opRefresh})
		}
	}
}

func (w *world) perform(actions []ballot.Action) {
	for _, a := range actions {
		r := &request{op: opRaise, token: a.Token}
		switch a.Op {
		case ballot.Ask:
			r.op = opAcquire
		case ballot.Yield:
			r.op = opYield
		case ballot.Leave:
			r.op = opLeave
		}
		if r.op != opRaise && w.entry != ballot.Wait {
			w.t.Fatalf("entry %d yields", w.entry)
		}
		w.send(a.Master, r)
	}
}

func (w *world) decide() {
	if w.token == 0 {
		decided := w.b.Target() != 0
		verdict, token, until := w.b.Decide(instant(w.now), w.reach)
		if !decided && w.b.Target() != 0 {
			w.mustReach(w.b.Target())
		}
		switch verdict {
		case ballot.Open:
		case ballot.Held:
			w.token = token
			w.mustStand(until.Mono)
		default:
			if verdict == ballot.Contended && w.entry != ballot.Try || verdict == ballot.Rival && w.entry != ballot.Upgrade {
				w.t.Fatalf("entry %d ends with verdict %d", w.entry, verdict)
			}
			w.over = true
			return
		}
	}
	w.perform(w.b.Next(nil))
}

// mustLeave checks that a waiter to which too few masters answer gives back what it has from those that do. With a
// target it starts again once the masters that are to answer have failed.
func (w *world) mustLeave() {
	able := 0
	for i := range w.masters {
		if v := w.b.Vote(i); v.Pending() || v.Err == nil {
			able++
		}
	}
	if w.entry != ballot.Wait || w.b.Target() != 0 || able >= w.b.Votes().Quorum() {
		return
	}
	for i := range w.masters {
		v := w.b.Vote(i)
		leaving := slices.ContainsFunc(w.requests[i], func(r *request) bool { return r.op == opYield || r.op == opLeave })
		if v.State == ballot.Granted && v.Err == nil && !leaving {
			w.t.Fatalf("a waiter keeps the grant of master %d: %+v", i, w.states())
		}
	}
}

// reach is what the client knows of the masters' clocks.
func (w *world) reach(i int) fencing.Token { return w.masters[i].clock + allowedLead }

// mustReach checks a target when it is decided: a quorum can come to it, or no answer that could make a better one.
func (w *world) mustReach(target fencing.Token) {
	able, pending := 0, 0
	for i := range w.masters {
		v := w.b.Vote(i)
		if v.Counts() && (v.Token == target || v.Token < target && w.reach(i) >= target) {
			able++
		}
		if v.Pending() {
			pending++
		}
	}
	if able < w.b.Votes().Quorum() && pending > 0 {
		w.t.Fatalf("target %d, which %d of %d masters can reach, with %d to answer", target, able, len(w.masters), pending)
	}
}

// extend renews or regains the lease on a master, while it stands.
func (w *world) extend(i int) {
	if w.token == 0 {
		return
	}
	if w.b.Vote(i).Renewing(w.token) {
		w.send(i, &request{op: opRenew, token: w.token})
		return
	}
	trusted, ok := w.b.Vote(i).Regaining(w.token, instant(w.now))
	if !ok {
		return
	}
	if trusted && !w.masters[i].backs(w.token, w.now) {
		w.t.Fatalf("regained with trust that master %d does not deserve", i)
	}
	w.send(i, &request{op: opRegain, token: w.token, trusted: trusted})
}

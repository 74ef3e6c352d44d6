package ballot_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
)

// FuzzBallot lets anything happen between one hold and its masters. The oracle is what the masters really have:
//
//   - it is held only while a quorum of them back its very token for as long as it is trusted, and no yield of such a
//     grant is on its way;
//   - no target is decided that too few of them can come to, while others have yet to answer;
//   - a vote never has two operations under way, and one that upgrades never yields;
//   - what a release has to reach is all that any of them has or may get yet;
//   - only a single attempt ends because others hold the lock, and only an upgrade because of a rival;
//   - a waiter that too few masters answer gives its grants back;
//   - once all is calm, an acquisition comes to an end.
func FuzzBallot(f *testing.F) {
	source := rand.NewChaCha8([32]byte{1})
	for range 20 {
		seed := make([]byte, 200)
		_, _ = source.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, events []byte) { play(t, events) })
}

// TestBallotAtRandom plays more runs than a fuzz target's seeds do.
func TestBallotAtRandom(t *testing.T) {
	source := rand.NewChaCha8([32]byte{2})
	events := make([]byte, 150)
	for range 30_000 {
		_, _ = source.Read(events)
		play(t, events)
	}
}

func play(t testing.TB, events []byte) {
	if len(events) < 2 {
		return
	}
	w := newWorld(t, ballot.Entry(events[0]%4), 1+2*int(events[0]/4%3))
	for i := range w.masters {
		w.masters[i].clock = fencing.Token(events[1] >> (2 * i) % 4)
		w.look(i)
	}
	for _, e := range events[2:] {
		if w.step(int(e%32), int(e/32)%len(w.masters)); w.over {
			break
		}
		w.mustStand(0)
		w.mustLeave()
	}
	if events[1]%2 == 0 && !w.over && w.token == 0 {
		w.calm()
	}
	w.giveUp()
}

// step is one event on a master.
func (w *world) step(event, i int) {
	m := &w.masters[i]
	switch event {
	case 0, 1, 2, 3:
		w.deliver(i)
	case 4, 5, 6, 7, 8:
		w.answer(i, event == 8)
	case 9, 10:
		w.look(i)
	case 11, 12:
		w.extend(i)
	case 13:
		w.fail(i, down)
	case 14:
		w.fail(i, denied)
	case 15:
		w.breakConnection(i)
	case 16, 17:
		w.stray(i)
	case 18:
		w.b.Vote(i).Late(errSilent)
		w.decide()
	case 19, 20:
		m.occupy(w.now)
	case 21, 22, 23:
		w.handOff(i)
	case 24, 25:
		w.message()
	case 26:
		m.older = m.grant.stands(w.now) && w.entry != ballot.Upgrade
		m.rival = !m.grant.stands(w.now) && !m.waits
		w.b.Vote(i).YieldRequested()
		w.decide()
	case 27:
		m.waits = false
		m.clock++
	case 28:
		w.now += leaseTTL / 3
		m.clock++
	case 29:
		m.snapshot = m.grant
	case 30:
		m.lose(m.snapshot, w.now)
	case 31:
		m.lose(grant{}, w.now)
	}
}

func (w *world) deliver(i int) {
	if at := slices.IndexFunc(w.requests[i], func(r *request) bool { return !r.ran }); at >= 0 {
		w.run(i, w.requests[i][at])
	}
}

// answer brings the first or the last answer that there is: they overtake each other.
func (w *world) answer(i int, last bool) {
	ran := func(r *request) bool { return r.ran }
	at := slices.IndexFunc(w.requests[i], ran)
	if at < 0 {
		return
	}
	for last && at+1 < len(w.requests[i]) && w.requests[i][at+1].ran {
		at++
	}
	r := w.requests[i][at]
	w.requests[i] = slices.Delete(w.requests[i], at, at+1)
	w.answered(i, r, r.answer)
}

// fail refuses the next request before it runs.
func (w *world) fail(i int, a ballot.Answer) {
	if q := w.requests[i]; len(q) > 0 && !q[0].ran {
		w.requests[i] = q[1:]
		w.answered(i, q[0], a)
	}
}

func (w *world) breakConnection(i int) {
	lost := w.requests[i]
	w.requests[i] = nil
	for _, r := range lost {
		if !r.ran {
			w.strays[i] = append(w.strays[i], r)
		}
	}
	for _, r := range lost {
		w.answered(i, r, silent)
	}
}

func (w *world) stray(i int) {
	if s := w.strays[i]; len(s) > 0 {
		w.strays[i] = s[1:]
		w.run(i, s[0])
	}
}

// handOff ends another's hold, and lets this one in if it waits.
func (w *world) handOff(i int) {
	m := &w.masters[i]
	m.busy, m.older, m.rival = false, false, false
	if m.waits && !m.grant.stands(w.now) && w.now >= m.abstains {
		m.mint(w.now)
		w.messages = append(w.messages, message{i, m.granted()})
	}
}

// message delivers one, the last first: they come in any order.
func (w *world) message() {
	if n := len(w.messages); n > 0 {
		m := w.messages[n-1]
		w.messages = w.messages[:n-1]
		if w.now < m.answer.Until.Mono {
			w.b.Vote(m.master).Granted(m.answer.Token, m.answer.Until)
			w.decide()
		}
	}
}

// mustStand checks a lease that trusts itself against what the masters have, until the given moment at least.
func (w *world) mustStand(until time.Duration) {
	if w.token == 0 {
		return
	}
	if end, ok := w.b.Votes().TrustedUntil(w.token); !ok || end.Passed(instant(w.now)) {
		w.over = true // lost
		return
	}
	backing := 0
	for i := range w.masters {
		if w.masters[i].backs(w.token, max(w.now, until)) && !w.yieldUnderWay(i) {
			backing++
		}
	}
	if backing < w.b.Votes().Quorum() {
		w.t.Fatalf("held with token %d, which %d of %d masters back", w.token, backing, len(w.masters))
	}
}

// yieldUnderWay reports whether a request may still end the grant that is counted on master i.
func (w *world) yieldUnderWay(i int) bool {
	for _, r := range append(w.requests[i], w.strays[i]...) {
		if (r.op == opYield || r.op == opLeave) && !r.ran && r.token == w.token {
			return true
		}
	}
	return false
}

// calm lets everything through, and nothing more happens: an acquisition ends.
func (w *world) calm() {
	w.now += 2 * leaseTTL
	for range 20 {
		for i := range w.masters {
			w.masters[i].clock = max(w.masters[i].clock, w.masters[i].counter)
			w.handOff(i)
			w.look(i)
			for range 3 {
				w.deliver(i)
				w.answer(i, false)
				w.message()
				if w.over || w.token != 0 {
					return
				}
			}
		}
	}
	w.t.Fatalf("nothing happens any more: %+v", w.states())
}

func (w *world) states() (votes []ballot.Vote) {
	for i := range w.masters {
		votes = append(votes, *w.b.Vote(i))
	}
	return votes
}

// giveUp releases the hold. Its requests that are on their way come after the release, over broken connections.
func (w *world) giveUp() {
	for i := range w.masters {
		m, v := &w.masters[i], w.b.Vote(i)
		if v.MayBeHeld() {
			m.release(v, w.now)
		}
		for _, r := range append(w.strays[i], w.requests[i]...) {
			if !r.ran {
				w.run(i, r)
			}
		}
		if (m.grant.stands(w.now) || m.waits) && !m.restored {
			w.t.Fatalf("master %d still has the hold: %+v, vote %+v", i, *m, *v)
		}
	}
}

package hold_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/hold"
)

var (
	histories = flag.Int("hold.histories", 20_000, "how many random histories TestRandomHistories plays")
	history   = flag.Uint64("hold.history", 0, "play this history alone, and tell it")
)

// Random histories of one hold: its masters run requests late, twice or never, lose their data, hand the lock over, and
// its caller does anything at any time. In each of them:
//
//   - every way out releases what a master has, or may have once a request has run that is on its way;
//   - trust never goes beyond what a quorum has confirmed with the token, and ends before masters that keep their data
//     let go of the hold, also while late requests of the hold run there;
//   - nothing follows after the end;
//   - a master has one request about a grant at a time, and a hold one round;
//   - a hold that is held has one timer, at its deadline at the latest, and keeps its token.
func TestRandomHistories(t *testing.T) {
	if *history > 0 {
		if w := play(*history, true); w.wrong != "" {
			t.Fatal(w.wrong)
		}
		return
	}
	began, steps, ends := time.Now(), 0, map[string]int{}
	for seed := range uint64(*histories) {
		w := play(seed+1, false)
		if w.wrong != "" {
			t.Fatalf("%s\ngo test ./internal/hold -run TestRandomHistories -hold.history %d", w.wrong, seed+1)
		}
		steps += w.steps
		ends[w.end]++
	}
	t.Logf("%d steps, %.1f million a second; ends: %v", steps, float64(steps)/time.Since(began).Seconds()/1e6, ends)
	for _, end := range []string{
		"", "failed", "gone", "not renewed", "paused", "expired", "max hold", "broken", "ended",
	} {
		if ends[end] == 0 && *histories >= 20_000 {
			t.Errorf("no history ends with %q", end)
		}
	}
}

type op uint8

const (
	opAcquire op = iota
	opConfirm
	opRaise
	opYield
	opRenew
	opRegain
	opRefresh
)

// answers are the events of the answers to each op.
var answers = [...]hold.Kind{
	hold.Answered, hold.Confirmed, hold.Raised, hold.Yielded, hold.Renewed, hold.Regained, hold.Refreshed,
}

// request is one request on its way. It runs at most once, but a copy may run later.
type request struct {
	op     op
	master int
	id     int // of the hold
	token  fencing.Token
	leave  bool
	ttl    time.Duration
	keep   time.Duration // that the master is asked for; at least the TTL
	sent   clock.Instant
	ran    bool
	stray  time.Duration // since when it has no answer, although it may run; 0 for one that is awaited
	answer ballot.Answer
}

// server is one master, with what it has of the hold.
type server struct {
	counter fencing.Token
	state   ballot.Status // IsAbsent, IsQueued or IsGranted
	id      int           // of the hold that it has
	token   fencing.Token
	until   time.Duration
	others  bool // another hold has the lock
	forgot  bool // it has lost its data
}

// confirmed is a grant of which the hold has been told.
type confirmed struct {
	master int
	token  fencing.Token
	until  time.Duration
}

type world struct {
	*rand.Rand
	tell     bool
	now      clock.Instant
	terms    hold.Terms
	world    hold.World
	entry    ballot.Entry
	life     hold.Hold
	id       int
	servers  []server
	requests []request
	known    []confirmed
	busy     []bool // by master: a request about a grant is on its way
	timer    time.Duration
	token    fencing.Token
	deadline time.Duration // of a hold that is lost, and kept for its holder
	silent   time.Duration // when a renewal last had no answer although it may run
	effects  []hold.Effect
	steps    int
	end      string
	wrong    string
}

var errDown = errors.New("down")

// play plays the history of this seed.
func play(seed uint64, tell bool) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), tell: tell}
	n := 1 + 2*w.IntN(3)
	w.terms = hold.Terms{TTL: 9 * time.Second, HandOff: 3 * time.Second, Renew: w.IntN(4) > 0}
	if w.IntN(8) == 0 {
		w.terms.MinHold = time.Duration(w.IntN(20)) * time.Second
	}
	if w.IntN(8) == 0 {
		w.terms.MaxHold = time.Duration(1+w.IntN(20)) * time.Second
	}
	w.world = hold.World{
		Drift: 0.01, Confirms: w.IntN(4) == 0, Risks: w.IntN(2) == 0, Jitter: w.Float64,
		Reach: func(int) fencing.Token { return fencing.MaxToken }, Stall: func() time.Duration { return time.Second },
		Silence: func(_, _ time.Duration) error { return errDown },
	}
	w.entry = []ballot.Entry{ballot.Wait, ballot.Wait, ballot.Try, ballot.Upgrade}[w.IntN(4)]
	w.servers, w.busy = make([]server, n), make([]bool, n)
	for i := range w.servers {
		w.servers[i] = server{counter: fencing.Token(w.IntN(3)), state: ballot.IsAbsent, others: w.IntN(3) == 0}
	}
	w.now, w.timer = at(time.Second), clock.Never
	w.life.Init(&w.terms, w.entry, n, w.entry == ballot.Upgrade, 0)
	w.step(hold.Event{Kind: hold.Begin})
	calm := w.IntN(2) == 0 // nothing is lost, and the caller is patient
	for w.steps < 120 && w.wrong == "" && w.life.Phase() < hold.Ended {
		w.next(calm)
	}
	for range 4 { // after the end
		w.event()
	}
	return w
}

// next has one thing happen.
func (w *world) next(calm bool) {
	w.pass(time.Duration(w.IntN(100)) * time.Millisecond)
	switch k := w.IntN(20); {
	case len(w.requests) > 0 && k < 12:
		w.network(w.IntN(len(w.requests)), calm)
	case k < 14:
		w.server(&w.servers[w.IntN(len(w.servers))], calm)
	case k < 16 && calm && len(w.requests) > 0:
	case k < 17:
		if w.IntN(40) == 0 { // a pause
			w.now = w.now.Add(time.Duration(w.IntN(12)) * time.Second)
		}
		w.pass(max(0, min(w.timer, w.now.Mono+5*time.Second)-w.now.Mono))
	case !calm || w.IntN(8) == 0:
		w.event()
	}
}

// pass has time go by, and the timer fire.
func (w *world) pass(d time.Duration) {
	if w.now = w.now.Add(d); w.now.Mono >= w.timer {
		w.step(hold.Event{Kind: hold.Tick})
	}
}

// event is anything that the caller or an operator does.
func (w *world) event() {
	e := hold.Event{Master: w.IntN(len(w.servers)), Way: hold.AtOnce}
	switch w.IntN(24) {
	case 0:
		e.Kind, e.Err = hold.Late, errDown
	case 1:
		if e.Kind = hold.Tick; w.IntN(4) == 0 {
			e.Kind = hold.GiveUp
		}
	case 2, 3, 4:
		e.Kind = hold.Renew
	case 5:
		e.Kind = hold.Poll
	case 6:
		e.Kind, e.TTL = hold.SetTTL, time.Duration(3+w.IntN(20))*time.Second
		e.Sent.Mono = w.silent
	case 7:
		if w.IntN(3) > 0 {
			return
		}
		e.Kind, e.By, e.Keeps = hold.Broken, errDown, w.IntN(2) == 0
	case 8:
		if w.IntN(3) > 0 {
			return
		}
		e.Kind = hold.Release
	case 9, 10, 11, 12:
		e.Kind = hold.Remind
	case 13:
		e.Kind = hold.Wanted
	case 14:
		e.Kind = hold.Heard
	case 15:
		if w.life.Phase() != hold.Held || w.IntN(4) > 0 {
			return
		}
		e.Kind, e.Way = hold.Release, hold.ByHeir
	case 16:
		e.Kind = hold.Disclaim
	default:
		queued := w.life.Phase() == hold.Asking && w.life.Votes()[e.Master].State == ballot.Queued
		if queued && !w.refreshes(e.Master) {
			w.send(request{op: opRefresh, master: e.Master})
		}
		return
	}
	w.step(e)
}

func (w *world) refreshes(master int) bool {
	return slices.ContainsFunc(w.requests, func(r request) bool { return r.op == opRefresh && r.master == master })
}

func (w *world) send(r request) {
	r.id, r.sent = w.id, w.now
	w.requests = append(w.requests, r)
}

// server is what happens at a master by itself.
func (w *world) server(s *server, calm bool) {
	switch k := w.IntN(12); {
	case k < 5: // the other holds leave, and the lock is handed over
		if s.others = false; s.state == ballot.IsQueued {
			w.grant(s, w.terms.HandOff, 0)
			if s.id == w.id && w.IntN(3) > 0 { // the message arrives
				i := slices.IndexFunc(w.servers, func(o server) bool { return o == *s })
				until := w.world.Drift.Trusted(w.now, w.terms.HandOff)
				if !w.world.Confirms {
					w.learn(i, s.token, until)
				}
				w.step(hold.Event{
					Kind: hold.Told, Master: i, Answer: ballot.Answer{Status: ballot.IsGranted, Token: s.token, Until: until},
				})
			}
		}
	case k < 7 && s.state != ballot.IsGranted:
		s.others = true
	case k == 8 && !calm: // it loses its data
		*s = server{counter: s.counter, state: ballot.IsAbsent, forgot: true}
	}
}

func (w *world) grant(s *server, ttl time.Duration, least fencing.Token) {
	s.counter = max(s.counter+1, least)
	s.state, s.token, s.until = ballot.IsGranted, s.counter, w.now.Mono+ttl
}

// network has one request run, or its answer arrive, or either be lost.
func (w *world) network(i int, calm bool) {
	r := &w.requests[i]
	k := w.IntN(12)
	switch {
	case r.stray > 0:
		if w.now.Mono < r.stray+hold.Lateness { // else its connection is closed
			w.run(r)
		}
		w.requests = slices.Delete(w.requests, i, i+1)
	case !r.ran && (calm || k < 8):
		w.run(r)
	case r.ran && (calm || k < 11):
		w.deliver(i, r.answer, false)
	case k < 10 && !r.ran: // it never left
		w.deliver(i, ballot.Answer{Status: ballot.NoAnswer, Err: errDown}, false)
	default: // the connection is lost: it may run later
		w.deliver(i, ballot.Answer{Status: ballot.NoAnswer, Err: errDown, Unknown: true}, !r.ran)
	}
}

// run runs a request at its master.
func (w *world) run(r *request) {
	s := &w.servers[r.master]
	if s.state == ballot.IsGranted && s.until <= w.now.Mono {
		s.state = ballot.IsAbsent
	}
	has := s.id == r.id && s.state != ballot.IsAbsent
	r.ran, r.answer = true, ballot.Answer{Status: ballot.IsAbsent}
	granted := func() {
		left := s.until - w.now.Mono
		r.answer = ballot.Answer{Status: ballot.IsGranted, Token: s.token, Until: w.world.Drift.Trusted(r.sent, left)}
	}
	switch {
	case !has && s.state != ballot.IsAbsent && s.id > r.id: // the next hold of the acquisition is there
	case r.op == opAcquire && !has && !s.others:
		s.id = r.id
		w.grant(s, w.terms.TTL, fencing.Token(w.IntN(3)))
		granted()
	case r.op == opAcquire && !has && w.entry == ballot.Try:
		r.answer.Status = ballot.IsRefused
	case r.op == opAcquire && !has:
		s.id, s.state = r.id, ballot.IsQueued
		r.answer.Status = ballot.IsQueued
	case r.op == opRegain && !s.others:
		s.id, s.state, s.token, s.until = r.id, ballot.IsGranted, r.token, w.now.Mono+r.keep
		s.counter = max(s.counter, r.token)
		granted()
	case !has:
	case s.state == ballot.IsQueued:
		r.answer.Status = ballot.IsQueued
	case r.op == opRaise && s.token < r.token && s.counter < r.token:
		s.token, s.counter = r.token, r.token
		granted()
	case (r.op == opRenew || r.op == opConfirm) && s.token == r.token:
		s.until = w.now.Mono + r.keep
		granted()
	case r.op == opRenew || r.op == opConfirm:
	case r.op == opYield && s.token == r.token && r.leave:
		s.state = ballot.IsAbsent
	case r.op == opYield && s.token == r.token && w.IntN(2) == 0:
		s.state, s.others = ballot.IsQueued, true
		r.answer.Status = ballot.IsQueued
	case r.op == opYield && s.token == r.token:
		w.grant(s, w.terms.HandOff, 0)
		granted()
	default:
		granted()
	}
}

// deliver reports the answer to a request.
func (w *world) deliver(i int, a ballot.Answer, strays bool) {
	r := w.requests[i]
	if strays {
		w.requests[i].stray = w.now.Mono
	} else {
		w.requests = slices.Delete(w.requests, i, i+1)
	}
	if a.Unknown && (r.op == opRenew || r.op == opConfirm) {
		w.silent = w.now.Mono
	}
	if r.id != w.id {
		return
	}
	if r.op != opAcquire && r.op != opRefresh {
		w.busy[r.master] = false
	}
	if r.op == opConfirm || r.op == opRenew {
		a.Until = w.world.Drift.Trusted(r.sent, r.ttl)
	}
	if a.Status == ballot.IsGranted {
		token := a.Token
		if r.op == opRenew || r.op == opConfirm || r.op == opRegain {
			token = r.token
		}
		w.learn(r.master, token, a.Until)
	}
	w.step(hold.Event{
		Kind: answers[r.op], Master: r.master, Answer: a, Token: r.token, Sent: r.sent, TTL: r.ttl, Err: a.Err,
	})
}

func (w *world) learn(master int, token fencing.Token, until clock.Instant) {
	w.known = append(w.known, confirmed{master, token, until.Mono})
}

// step reports an event, judges what follows, and does it.
func (w *world) step(e hold.Event) {
	w.steps++
	before, until := w.life.Phase(), w.life.Ends()
	now := hold.Now{Instant: w.now, Terms: &w.terms, World: &w.world}
	w.effects = w.life.Step(now, e, w.effects[:0])
	if w.tell {
		fmt.Printf("%v: %+v\n", w.now.Mono, e)
		for _, f := range w.effects {
			what, how := describe(f)
			fmt.Printf("      %s %d%s\n", what, f.Master, how)
		}
	}
	if before != hold.Lost && w.life.Phase() == hold.Lost {
		w.deadline = until
	}
	w.judge(e, before)
	again := false
	for _, f := range w.effects {
		again = w.do(f) || again
	}
	if again {
		w.step(hold.Event{Kind: hold.Begin})
	}
}

// do does what follows.
func (w *world) do(f hold.Effect) (again bool) {
	r := request{master: f.Master, token: f.Token, ttl: f.TTL, keep: f.Keep}
	switch f.Kind {
	case hold.SendAcquire:
		r.op = opAcquire
	case hold.SendConfirm:
		r.op = opConfirm
	case hold.SendRaise:
		r.op = opRaise
	case hold.SendYield:
		r.op, r.leave = opYield, f.Leave
	case hold.SendRenew:
		r.op = opRenew
	case hold.SendRegain:
		r.op = opRegain
	case hold.SetTimer:
		w.timer = f.At
		return false
	case hold.Restart:
		w.id++
		w.known = w.known[:0]
		clear(w.busy)
		return true
	case hold.Fail:
		w.end = "failed"
		return false
	case hold.End:
		if w.end = "ended"; f.Loss != nil {
			w.end = string(f.Loss.Reason)
		}
		return false
	default:
		return false
	}
	w.send(r)
	return false
}

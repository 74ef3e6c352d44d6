package hold

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Phase is the phase of a hold. It only moves forward.
type Phase uint8

// A hold is Asking also while it waits in a queue.
const (
	Asking Phase = iota
	Held
	Lost   // by an operator, and its holder may still work: the masters keep it until the release, or its deadline
	Ended  // it was held
	Failed // it was not
)

// Terms are what the holder wants. They never change.
type Terms struct {
	TTL     time.Duration
	HandOff time.Duration // how long a hand-off lasts without a renewal, and a waiter without a refresh
	MaxHold time.Duration // 0: without end
	MinHold time.Duration // 0: a release frees the lock
	Renew   bool
}

// World is what the holds of one process share. It never changes.
type World struct {
	Drift    clock.Drift
	Confirms bool // a grant that another request has brought about counts only once the master has confirmed it
	Risks    bool // AtRisk is wanted

	Reach   ballot.Reach                        // the largest token to which a master permits a raise now
	Stall   func() time.Duration                // how long a round waits for a quorum
	Silence func(sent, now time.Duration) error // the failure of a master that has not answered
	Jitter  func() float64                      // from 0 to 1
}

// Now is the time of a step, with what never changes: thousands of holds exist at once, and none has it in itself.
type Now struct {
	clock.Instant
	Terms *Terms
	World *World
}

// Hold is one hold. The mutex of its lease guards it, but for Until.
type Hold struct {
	ballot ballot.Ballot
	mono   atomic.Int64 // until when it is trusted, because a quorum of the votes is: see Until
	wall   atomic.Int64
	due    time.Duration // of the next round of renewals, clock.Never for none; of a hold that is kept, of its release
	sent   clock.Instant // when the last round began
	failed *Failures     // of renewals, since a quorum last renewed; nil for most
	extra  *extra        // nil for most

	phase      Phase
	entry      ballot.Entry
	restarts   uint8 // holds that came to nothing
	unregained uint8 // answers of masters that did not take it back
	queued     bool  // it has begun to wait
	round      bool  // a round is under way
	stands     bool  // a quorum has confirmed the last round that was begun
	confirm    bool  // it is a hand-off, which is short until its first renewal
	handOff    bool  // no renewal has confirmed that hand-off
	safe       bool  // AtRisk has not come since the last renewal
	again      bool  // start another round as soon as a quorum confirms this one
	second     bool  // of a conversion: the lease stands on another hold
	unclaimed  bool  // no caller has it so far
}

// extra is what few holds need.
type extra struct {
	limit   time.Duration // when MaxHold ends the hold; clock.Never without, and before the exchange of a second hold
	first   time.Duration // when the lease learnt of its first grant, if it has a minimum; 0 before, or without
	changed *change       // by SetTTL, or nil
}

// Init makes h a hold that is to be asked for. The second hold of a conversion is so until Exchange; first is the first
// grant of the lease, if that has a minimum.
func (h *Hold) Init(terms *Terms, entry ballot.Entry, masters int, second bool, first time.Duration) {
	h.entry, h.second = entry, second
	h.ballot.Start(entry, masters)
	if terms.MinHold > 0 || terms.MaxHold > 0 {
		h.extra = &extra{limit: clock.Never, first: first}
	}
}

func (h *Hold) Phase() Phase { return h.phase }

// IsOver reports whether the hold is held no more, or has failed.
func (h *Hold) IsOver() bool { return h.phase >= Lost }

// Token returns the token that the hold was granted with, 0 before.
func (h *Hold) Token() fencing.Token {
	if h.phase == Asking || h.phase == Failed {
		return 0
	}
	return h.ballot.Target()
}

// Votes returns the votes, for the caller to read.
func (h *Hold) Votes() ballot.Tally { return h.ballot.Votes() }

// Until returns until when the hold is trusted. clock.Drift.Trusted counts that from before the request was sent. It is
// written under the lease's mutex and read with or without it. The two clocks are stored one after the other, and trust
// needs both of them. So a reader without the mutex that sees only the first store trusts the hold no longer than
// before where the deadline moves forward. Where a shorter TTL or the end moves it back, that reader trusts the hold no
// longer than until the new deadline.
func (h *Hold) Until() clock.Instant {
	return clock.Instant{Mono: time.Duration(h.mono.Load()), Wall: time.Duration(h.wall.Load())}
}

func (h *Hold) trust(until clock.Instant) {
	h.mono.Store(int64(until.Mono))
	h.wall.Store(int64(until.Wall))
}

// Ends returns when a held hold ends by the monotonic clock, unless it is renewed.
func (h *Hold) Ends() time.Duration {
	if h.extra == nil {
		return h.Until().Mono
	}
	return min(h.Until().Mono, h.extra.limit)
}

// HasExpired reports whether the time of a held hold is over. The next step ends it.
func (h *Hold) HasExpired(now clock.Instant) bool {
	return h.phase == Held && (h.Until().Passed(now) || h.extra != nil && now.Mono >= h.extra.limit)
}

// Rounds reports whether a round of renewals is under way.
func (h *Hold) Rounds() bool { return h.round }

// First returns when the lease learnt of its first grant, if it has a minimum.
func (h *Hold) First() time.Duration {
	if h.extra == nil {
		return 0
	}
	return h.extra.first
}

// Step applies an event, and appends what follows from it to effects. It is the only way to change a hold.
func (h *Hold) Step(now Now, e Event, effects []Effect) []Effect {
	n, do := &now, effects
	if h.phase == Held && h.HasExpired(now.Instant) { // before anything else: no answer counts after the deadline
		do = h.expire(n, do)
	}
	switch {
	case h.phase >= Ended:
	case h.phase == Lost:
		do = h.whileLost(n, &e, do)
	case e.Kind <= Broken:
		do = h.told(n, &e, do)
	case h.phase == Asking:
		do = h.whileAsking(n, &e, do)
	default:
		do = h.whileHeld(n, &e, do)
	}
	if h.phase == Held || h.phase == Lost {
		do = append(do, Effect{Kind: SetTimer, At: h.next(n)})
	}
	return do
}

func (h *Hold) whileAsking(now *Now, e *Event, do []Effect) []Effect {
	switch e.Kind {
	case Begin:
		return h.begin(do)
	case Remind:
		return h.remind(e, do)
	case Late:
		for i := range h.ballot.Votes() {
			h.ballot.Vote(i).Late(e.Err) // changes no vote that has been answered
		}
		return h.decide(now, do)
	case GiveUp:
		if e.Unsent {
			h.ballot.Vote(e.Master).Unsent()
		}
		return h.giveUp(now, Effect{Verdict: ballot.Open}, do)
	case Repeated:
		vote := h.ballot.Vote(e.Master)
		vote.Ask()
		vote.Unknown = true // a release may overtake the repeated request, and finds no hold
	case Heard:
		vote := h.ballot.Vote(e.Master)
		if vote.State == ballot.Queued {
			return append(do, Effect{Kind: Wake, Master: e.Master})
		}
		vote.Notified = true
	case Refreshed:
		return h.refreshed(now, e, do)
	case Wanted:
		h.ballot.Vote(e.Master).YieldRequested()
		return h.act(do)
	case Disclaim:
		h.unclaimed = true
	default:
	}
	return do
}

// told applies what a master says of the hold in either phase.
func (h *Hold) told(now *Now, e *Event, do []Effect) []Effect {
	switch e.Kind {
	case Answered:
		return h.answered(now, e, do)
	case Told:
		h.ballot.Vote(e.Master).Block(e.Answer.Token, e.First)
		do = h.granted(now, e.Master, e.Answer, do)
	case Confirmed:
		h.noteUnanswered(now, e)
		e.Answer.Until = now.World.Drift.Trusted(e.Sent, e.TTL)
		h.ballot.Vote(e.Master).Confirmed(e.Token, e.Answer)
	case Raised: // a vote for the target only if the master has counted the target (case raise-unheld of the model)
		h.ballot.Vote(e.Master).Raised(e.Token, e.Answer)
	case Yielded:
		return h.yielded(now, e, do)
	default:
		return h.broken(now, e, do)
	}
	return h.changed(now, e.Master, do)
}

// attempts bounds how often a hold restarts at once after grants that came to nothing, and how often a single try
// restarts at all: over a link slower than the TTL every grant comes too late.
const attempts = 3

// waits reports whether the hold may wait for other holds to leave.
func (h *Hold) waits() bool { return h.entry == ballot.Wait || h.entry == ballot.Upgrade }

// begin asks every master. After too many restarts the masters are asked later: the reason may last.
func (h *Hold) begin(do []Effect) []Effect {
	votes := h.ballot.Votes()
	for i := range votes {
		if h.restarts > attempts {
			do = h.wait(Effect{Master: i, N: int(h.restarts) - attempts}, do)
			continue
		}
		votes[i].Ask()
		do = append(do, Effect{Kind: SendAcquire, Master: i, Urgent: true})
	}
	return do
}

// wait has the hold wait for this master, and once it waits for one, for those that have granted it: refreshes keep
// these grants.
func (h *Hold) wait(f Effect, do []Effect) []Effect {
	f.Kind = Wait
	if !h.queued {
		h.queued = true
		for i := range h.ballot.Votes() {
			if i != f.Master && h.ballot.Vote(i).State == ballot.Granted {
				do = append(do, Effect{Kind: Wait, Master: i})
			}
		}
	}
	do = append(do, f)
	if vote := h.ballot.Vote(f.Master); vote.Notified { // the master may have granted it since
		vote.Notified = false
		do = append(do, Effect{Kind: Wake, Master: f.Master})
	}
	return do
}

// remind asks a master of which nothing is known. A grant without a quorum is offered to an older hold that may wait
// behind it.
func (h *Hold) remind(e *Event, do []Effect) []Effect {
	switch vote := h.ballot.Vote(e.Master); vote.State {
	case ballot.Unasked, ballot.Failed:
		if !e.Quiet {
			vote.Ask()
			do = append(do, Effect{Kind: SendAcquire, Master: e.Master})
		}
	case ballot.Granted:
		do = send(h.ballot.Remind(e.Master, nil), do)
	default:
	}
	return do
}

// answered applies the answer to a request for the hold. A hold that is not granted waits for that master, and once it
// waits for one, for all.
func (h *Hold) answered(now *Now, e *Event, do []Effect) []Effect {
	votes := h.ballot.Votes()
	vote := &votes[e.Master]
	if e.By != nil {
		e.Answer.Status = ballot.IsQueued // no refusal: the master keeps the hold until it is given back
	}
	if vote.Unknown && e.Answer.Status == ballot.IsGranted && now.World.Confirms {
		// The previous request may have been granted, or handed the lock. This one has written nothing, so neither its
		// answer nor the WAIT behind it covers that write. The grant is confirmed like one that a message reported.
		// A single attempt has no refresh that would report it again, and goes on to be asked.
		if h.waits() {
			vote.Answered(ballot.Answer{Status: ballot.IsQueued})
		}
		do = h.granted(now, e.Master, e.Answer, do)
	} else {
		vote.Answered(e.Answer)
	}
	if e.By != nil {
		return h.broken(now, e, do)
	}
	vote.Block(e.Answer.Token, e.First)
	do = h.changed(now, e.Master, do)
	if len(votes) > 1 && h.phase == Held && now.Terms.Renew && h.counterAhead(now, e.Master) != nil {
		do = h.poll(now, do) // no regain: it may be refused
	}
	if h.phase != Asking || !h.waits() || restarts(do) || !h.queued && vote.State == ballot.Granted {
		return do
	}
	return h.wait(Effect{Master: e.Master, At: e.After, Served: e.Err == nil, Err: e.Err}, do)
}

// yielded applies the answer to a yield. The master may have kept the grant, with a new token, or may have granted the
// hold again at once. Else the hold waits behind the one that got the grant.
func (h *Hold) yielded(now *Now, e *Event, do []Effect) []Effect {
	vote := h.ballot.Vote(e.Master)
	vote.Yielded(e.Token, e.Answer)
	vote.Block(e.Answer.Token, e.First)
	if h.phase == Held {
		return do
	}
	if do = h.decide(now, do); h.phase == Asking && !restarts(do) {
		do = h.wait(Effect{Master: e.Master, At: e.After, Err: e.Err}, do)
	}
	return do
}

// restarts reports whether this step has given up the hold to ask with another one.
func restarts(do []Effect) bool { return len(do) > 0 && do[len(do)-1].Kind == Restart }

// refreshed applies what a refresh says of a waiter.
func (h *Hold) refreshed(now *Now, e *Event, do []Effect) []Effect {
	if e.Answer.Status == ballot.IsGranted {
		do = h.granted(now, e.Master, e.Answer, do)
	} else if h.ballot.Vote(e.Master).Refreshed(e.Answer) {
		do = append(do, Effect{Kind: AskAgain, Master: e.Master})
	}
	return h.decide(now, do)
}

// granted counts a grant that a message or a refresh reported: at once, or when it is confirmed. A vote has at most one
// confirmation under way. A later grant is confirmed when the next refresh reports it.
func (h *Hold) granted(now *Now, master int, a ballot.Answer, do []Effect) []Effect {
	vote := h.ballot.Vote(master)
	switch {
	case !now.World.Confirms:
		vote.Granted(a.Token, a.Until)
	case vote.Confirming(a.Token):
		// A millisecond more than the TTL, because an unchanged expiry would not be a write.
		keep := max(now.Terms.TTL, h.minimumLeft(now)) + time.Millisecond
		do = append(do, Effect{
			Kind: SendConfirm, Master: master, Token: a.Token, TTL: now.Terms.TTL, Keep: keep, Until: a.Until,
		})
	}
	return do
}

// changed acts on a vote that has changed. While the hold is asked for, the change may decide the verdict. After that
// only actions follow: the hold has its token, and no late answer of a master revokes it. The master takes part in a
// round under way, because it may have granted the hold since the round began.
func (h *Hold) changed(now *Now, master int, do []Effect) []Effect {
	if h.phase == Asking {
		return h.decide(now, do)
	}
	if do = h.act(do); h.round {
		do = h.settle(now, h.renew(now, master, h.Until(), do))
	}
	return do
}

// act appends what the votes ask for.
func (h *Hold) act(do []Effect) []Effect {
	var few [4]ballot.Action
	if actions := h.ballot.Next(few[:0]); len(actions) > 0 {
		do = send(actions, do)
	}
	return do
}

func send(actions []ballot.Action, do []Effect) []Effect {
	for _, action := range actions {
		f := Effect{Kind: SendRaise, Master: action.Master, Token: action.Token}
		switch action.Op {
		case ballot.Ask:
			f.Kind, f.Urgent = SendAcquire, true
		case ballot.Yield, ballot.Leave:
			f.Kind, f.Leave = SendYield, action.Op == ballot.Leave
		default:
		}
		do = append(do, f)
	}
	return do
}

// decide acts on the result of the votes.
//
// The verdict comes before the actions. A granted hold needs no more raises to be one, but a verdict drawn before the
// raises have been answered would report a token that no quorum has counted (case no-raise of the model). The time of
// the step is after the answer was counted and after every raise: trust in the first grants may have ended while the
// last raise was under way.
func (h *Hold) decide(now *Now, do []Effect) []Effect {
	verdict, _, until := h.ballot.Decide(now.Instant, now.World.Reach)
	switch verdict {
	case ballot.Open:
	case ballot.Held:
		do = h.held(now, until, do)
	case ballot.TooLate:
		return h.restart(now, do)
	default:
		return h.giveUp(now, Effect{Verdict: verdict}, do)
	}
	return h.act(do)
}

// held is called once the hold is granted.
func (h *Hold) held(now *Now, until clock.Instant, do []Effect) []Effect {
	h.phase = Held
	h.trust(until)
	if r := h.extra; r != nil {
		if now.Terms.MinHold > 0 && r.first == 0 {
			r.first = max(now.Mono, 1)
		}
		// The limit counts from when this process learns of the grant, so it is never shorter than agreed.
		if now.Terms.MaxHold > 0 && !h.second {
			r.limit = now.Mono + now.Terms.MaxHold
		}
	}
	// A grant from the queue, reported in any way, lasts for the hand-off TTL until it is confirmed. An answer can
	// report one too: to a request that was repeated while the hold was granted. So the time that is left decides, not
	// the way.
	votes := h.ballot.Votes()
	handedOff, most := votes.HandedOff(), now.World.Drift.Trusted(now.Instant, now.Terms.HandOff)
	h.confirm = (handedOff || now.Terms.HandOff < now.Terms.TTL) && until.Mono <= most.Mono
	h.handOff = h.confirm
	h.plan(now)
	for i := range votes {
		if len(votes) > 1 && now.Terms.Renew && h.counterAhead(now, i) != nil {
			h.due = now.Mono
		}
	}
	return append(do, Effect{Kind: Start, Token: h.ballot.Target(), Known: handedOff})
}

// CounterAhead is the failure of a master, of several, that has granted the hold with a token that its clock does not
// allow, by so many: its counter is from a time when the clock was ahead.
type CounterAhead struct{ By fencing.Token }

func (c *CounterAhead) Error() string {
	return fmt.Sprint("its counter is ahead of its clock by ", c.By)
}

// counterAhead returns the CounterAhead of a master, or nil. The regain that follows a renewal sets that counter back,
// to 1 s ahead of the master's clock. So a hold that is held is renewed at once.
func (h *Hold) counterAhead(now *Now, master int) error {
	vote := h.ballot.Vote(master)
	if vote.State != ballot.Granted || vote.Token <= h.Token() {
		return nil
	}
	if reach := now.World.Reach(master); vote.Token > reach {
		return &CounterAhead{By: vote.Token - reach}
	}
	return nil
}

// restart gives up a hold that came to nothing, and asks with a new one. The old one cannot be used: some masters have
// it with a token that does not count any more, and one hold has one token. A join has no second try: the hold that it
// wanted to join does not stand on a quorum.
func (h *Hold) restart(now *Now, do []Effect) []Effect {
	if h.entry == ballot.Join || h.entry == ballot.Try && h.restarts >= attempts-1 {
		return h.giveUp(now, Effect{Verdict: ballot.TooLate}, do)
	}
	first := len(do)
	do = h.releaseAttempt(now, do) // from the votes of the old hold, so before the ballot starts again
	for i := range do[first:] {
		do[first+i].Heir = true
	}
	errs := make(Failures, h.ballot.Votes().Masters())
	for i := range errs {
		if errs[i] = h.ballot.Vote(i).Err; errs[i] == nil && len(errs) > 1 {
			errs[i] = h.counterAhead(now, i)
		}
	}
	h.restarts = min(h.restarts, math.MaxUint8-1) + 1
	h.ballot.Start(h.entry, len(errs))
	return append(do, Effect{Kind: Restart, Err: errs})
}

// giveUp ends asking without a hold.
func (h *Hold) giveUp(now *Now, f Effect, do []Effect) []Effect {
	h.phase, f.Kind = Failed, Fail
	return h.releaseAttempt(now, append(do, f))
}

// broken ends the hold because a master says that an operator has broken it. One master suffices: the end is one on all
// of them, as the operator wants. The holder is told, and may work for a moment longer, so the masters keep the hold
// until the holder has released the lease, or until the deadline that it had.
func (h *Hold) broken(now *Now, e *Event, do []Effect) []Effect {
	loss := &Loss{Reason: ByOperator, Err: e.By}
	switch {
	case h.phase == Asking:
		return h.giveUp(now, Effect{Verdict: ballot.Contended, Err: e.By}, do)
	case e.Keeps:
		return h.end(now, loss, Later, do)
	default:
		return h.end(now, loss, Together, do)
	}
}

// releaseAttempt releases what the masters may have of a hold that is asked for. This includes a master that has not
// answered: its request may still run. Its release leaves a tombstone, so that the request finds that it came too late
// (case overtake of the model: without the tombstone the master would grant a hold that has no holder). The releases of
// waiters may be many, so they are sent together. Another attempt
// that starts again waits for the answers, so its releases are sent at once.
func (h *Hold) releaseAttempt(now *Now, do []Effect) []Effect {
	way := AtOnce
	if h.entry == ballot.Wait {
		way = Together
	}
	return h.sendReleases(now, way, false, do)
}

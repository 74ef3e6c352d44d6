package engine

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/schedule"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// hold is what the masters have under one id, with their votes and the trust in them, from the first request until all
// of it is released. A lease has one hold, and a second one while it converts. The mutex of the lease guards both;
// "under mu" means that mutex. Thousands of holds exist at once, so a hold has only the fields that every held one
// needs: what only asking needs is in acquisition, and what few holds need is in extra.
type hold struct {
	e       *Engine
	lease   *Lease
	done    *doneState // of the lease; a second hold has its own until the exchange
	id      string     // a ULID; changes where the acquisition starts again, and answers for the old id do not count
	name    string     // of the lock
	key     string
	terms   *Terms
	extra   *extra        // nil for most
	begun   time.Duration // start of the first attempt, by the monotonic clock
	ballot  ballot.Ballot
	asking  *acquisition // nil once asking is over
	trust   trust        // until when the hold is trusted
	keeping keeping
	timer   timerqueue.Timer // for the earliest of deadline, limit and renewal; set while held
	mode    fencing.Mode
	phase   phase

	replaced    bool   // by a conversion: the lease stands on another hold
	unobserved  bool   // the hooks were not notified of the grant
	provisional bool   // not reported unless keep is called: see group
	unclaimed   bool   // no caller has it so far, so it leaves no minimum behind: see claim
	contended   bool   // it was not granted at once
	kept        bool   // an operator has broken it, and its holder may still work
	unregained  uint8  // answers of masters that did not take it back
	waited      uint32 // ms from begun to the grant, at most 49 days; a time.Duration would make every lease larger
}

// extra has the fields that few holds need, for options that most leases do not have.
type extra struct {
	owner      string          // a ULID that the caller named, or ""
	ctx        context.Context // of the acquisition, without its end; for hooks, nil if there are none
	shared     sharedHold
	limit      time.Duration // when MaxHold ends the lease; clock.Never without, and before the exchange of a second hold
	firstGrant time.Duration // when the lease learnt of its first grant, if it has a minimum; 0 before, or without
	changed    *changedTTL   // of SetTTL, or nil
	mark       *mark         // of Detach, or nil
}

// owner returns the owner's ULID. If the caller named none, it is the hold's id, and no hold can join it.
func (h *hold) owner() string {
	if h.extra != nil && h.extra.owner != "" {
		return h.extra.owner
	}
	return h.id
}

// block returns how many tokens a shared hold asks for; 0 for all other holds.
func (h *hold) block() int {
	if h.extra == nil {
		return 0
	}
	return h.extra.shared.block
}

// details returns what a master stores of the hold unchanged. claim is for how long a waiter lives without a refresh.
func (h *hold) details(route wire.Route, converts string, claim wire.Millis) string {
	d := wire.Details{Mode: h.mode, HandoffTTL: claim, Converts: converts, Route: route, Meta: h.terms.Meta}
	if h.extra != nil {
		d.Owner, d.Block = h.extra.owner, h.extra.shared.block
		return d.Text()
	}
	described := &h.e.described[h.mode]
	last := described.Load()
	if last == nil || last.details != d {
		last = &description{d, d.Text()}
		described.Store(last)
	}
	return last.text
}

// description is the text of details. Mostly all holds of an engine in one mode have the same.
type description struct {
	details wire.Details
	text    string
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
	return Event{
		Name: h.name, Mode: h.mode, Owner: h.owner(), Hold: h.id, Token: h.token(),
		Since: h.e.clock.Now().Mono - h.begun, Contended: h.contended,
	}
}

// changed acts on a vote that has changed, under mu. While the hold is asking, the change may decide the verdict. After
// that only actions follow: the hold has its token, and no late answer of a master revokes it. The master takes part in
// a round under way, because it may have granted the hold since the round began. After the deadline no answer moves it.
func (h *hold) changed(m *transport.Master) {
	if h.asking != nil {
		h.asking.decide()
		return
	}
	h.perform(h.ballot.Next(nil))
	// At the deadline another holder may have entered, though the timer is late, and no answer moves the deadline then.
	if h.keeping.round != nil && h.stillHeld() {
		h.keeping.ask(m, h.trust.until())
		h.keeping.settle(h.e.clock.Now())
	}
}

// ends returns when the hold ends by the monotonic clock unless it is renewed.
func (h *hold) ends() time.Duration {
	if h.extra == nil {
		return h.trust.until().Mono
	}
	return min(h.trust.until().Mono, h.extra.limit)
}

// isStanding reports whether the lease stands on this hold, which is not so for a second hold before the exchange.
func (h *hold) isStanding() bool { return h.lease.standing.Load() == h }

// begin is called for a granted hold, under mu.
func (h *hold) begin(token fencing.Token, until, now clock.Instant, handedOff bool) {
	h.phase, h.waited = held, uint32(min((now.Mono-h.begun).Milliseconds(), math.MaxUint32))
	h.trust.set(until)
	if x := h.extra; x != nil {
		x.shared.first = h.ballot.Votes().First(token)
		if h.terms.MinHold > 0 && x.firstGrant == 0 {
			x.firstGrant = max(now.Mono, 1)
		}
		// The limit counts from when this process learns of the grant, so it is never shorter than agreed.
		if h.terms.MaxHold > 0 && h.isStanding() {
			x.limit = now.Mono + h.terms.MaxHold
		}
	}
	if len(h.e.masters) > 1 && h.block() == 0 {
		h.e.tokens.observe(token)
	}
	h.e.counters.held.Add(1)
	if h.unobserved = h.provisional; !h.provisional { // else it is reported once it is kept
		h.e.observers.acquired(h)
	}
	// A grant from the queue, reported in any way, lasts for the hand-off TTL until it is confirmed. An answer can
	// report one too: to a request that was repeated while the hold was granted. So the time that is left decides, not
	// the way.
	handOff := h.e.drift.Trusted(now, h.terms.handoffTTL)
	h.keeping.confirm = (handedOff || h.terms.handoffTTL < h.terms.TTL) && until.Mono <= handOff.Mono
	h.keeping.handOff = h.keeping.confirm
	h.keeping.plan(now)
	if h.terms.Renew && slices.ContainsFunc(h.e.masters, h.outrun) {
		h.keeping.due = now.Mono
	}
	h.setTimer(now)
}

// outrun reports whether this master has granted the hold, of several, with a token that its clock does not allow. The
// first regain sets its counter back, so the lease is renewed at once.
func (h *hold) outrun(m *transport.Master) bool {
	return h.ballot.Vote(m.Index).Token > h.ballot.Target() && h.counterAhead(m.Index) != nil
}

// counterAhead describes a master's grant of the hold, of several, with a token that its clock does not allow: its
// counter is from a time when the clock was ahead. It returns nil for every other grant.
func (h *hold) counterAhead(master int) error {
	vote, t := h.ballot.Vote(master), &h.e.tokens
	if vote.State != ballot.Granted || len(h.e.masters) == 1 || vote.Token <= t.reach(master) {
		return nil
	}
	by := time.Duration(vote.Token-t.reach(master))*time.Microsecond + allowedLead
	return &CounterAhead{By: by.Round(time.Second)}
}

// Fire is the timer's call at the hold's next moment. The timer may be late, or early because of a call that was under
// way when it was moved, so Fire finds what is due from the clocks.
func (h *hold) Fire(now clock.Instant) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	switch h.expire(now); {
	case h.phase == held:
		h.keeping.fire(now)
		h.setTimer(now)
	case h.extra != nil:
		h.extra.mark.goOn(now)
	}
}

// setTimer sets the timer to the hold's next moment, under mu.
func (h *hold) setTimer(now clock.Instant) {
	at := min(h.trust.until().Mono, h.keeping.next(now))
	if h.extra != nil {
		at = min(at, h.extra.limit)
	}
	h.e.timers.Set(&h.timer, h, at)
}

// expire ends the hold if its time is over, under mu, regardless of calls under way. The masters keep it a little
// longer, so no other client has the lock at this time.
func (h *hold) expire(now clock.Instant) {
	if h.phase != held {
		return
	}
	deadline := h.trust.until()
	switch {
	// The cases are in the order of the reasons: a limit that was agreed on is no failure, even if something else has
	// ended too.
	case h.extra != nil && now.Mono >= h.extra.limit:
		h.lose(h.loss(MaxHold, nil))
	case !deadline.Passed(now):
	case now.Mono < deadline.Mono:
		h.lose(h.loss(Paused, nil)) // only the wall clock has reached it
	default:
		reason, cause := h.keeping.whyExpired(now)
		h.lose(h.loss(reason, cause))
	}
}

// stillHeld reports whether the hold is held, under mu. An end whose time has come is noticed here.
func (h *hold) stillHeld() bool {
	h.expire(h.e.clock.Now())
	return h.phase == held
}

// loss describes the end of the hold for this reason, under mu.
func (h *hold) loss(reason Reason, cause error) *Loss {
	loss := &Loss{Name: h.name, Token: h.token(), Reason: reason, Err: cause}
	if h.extra != nil {
		loss.Token = h.extra.shared.inUse(loss.Token)
	}
	switch {
	case reason == Taken:
		loss.by, loss.lock = h.e, h.key
		h.e.evictions.suspect(loss.lock)
	case reason == Broken:
	case reason == MaxHold:
		loss.Limit = h.terms.MaxHold
	case h.keeping.handOff:
		loss.Limit, loss.HandOff = h.terms.handoffTTL, true
	default:
		loss.Limit = h.keeping.ttl()
	}
	return loss
}

// lose ends the hold without its holder's wish, under mu. It releases what a minority of the masters may still have:
// that is of no use, and other clients would wait for its expiry. A hold that is kept is released later: see broken.
func (h *hold) lose(loss *Loss) {
	if !h.provisional {
		h.e.counters.lost(loss.Reason) // first, so that a reader that sees the end sees it counted
		if loss.Reason == Expired {    // an end as planned
			h.e.observers.final(OnExpired, h, nil)
		} else {
			h.e.losses.add(h, loss)
			h.e.observers.warnOfLoss(h, loss)
			h.e.observers.final(OnLost, h, loss)
		}
	}
	h.finish(loss)
	if loss.Reason == Taken && h.extra != nil {
		h.extra.firstGrant = 0 // it leaves no minimum behind: no quorum has it any more
	}
	if !h.kept {
		giveTogether(h, nil)
	}
}

// inherit ends the hold because the hold before it was broken, although this process released that one without knowing.
// An acquisition that asks again goes on under its next id, a lease that was converted with the hold in the other mode.
// For the operator both are what he has broken, but a message that names the former hold finds it no more. So the
// master says so when the former hold is released. Without an heir nothing goes on.
func (h *hold) inherit(by *Breaker) {
	if h == nil {
		return
	}
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.replaced { // by a conversion, while the release was on its way
		h = h.lease.standing.Load()
	}
	if h.phase != ended {
		h.broken(by)
	}
}

// broken ends the hold, under mu, because a master says that an operator has broken it. One master suffices: the end is
// one on all of them, as the operator wants. The holder is told, and may work for a moment longer, so the masters
// keep the hold until the holder has released the lease, or until the deadline that it had.
func (h *hold) broken(by *Breaker) {
	if h.phase == asking {
		h.asking.giveUp(h.asking.failure(Contended, by))
		return
	}
	until := h.ends()
	h.kept = !by.Now
	if h.lose(h.loss(Broken, by)); h.kept {
		h.e.timers.Set(&h.timer, (*keptHold)(h), until)
	}
}

// keptHold is a broken hold whose timer is set for the end of its time.
type keptHold hold

func (k *keptHold) Fire(clock.Instant) {
	k.lease.mu.Lock()
	defer k.lease.mu.Unlock()
	(*hold)(k).letGo()
}

// letGo gives back, under mu, a broken hold that is kept for its holder. For any other hold it does nothing.
func (h *hold) letGo() {
	if h.kept {
		h.kept = false
		h.e.timers.Cancel(&h.timer)
		giveAtOnce(h, nil)
	}
}

// finish ends a granted hold, under mu, and with the standing hold the lease. It is the only way out of the phase held.
// Trust ends first, for readers without the mutex. The contexts end when the mutex is unlocked, before the caller sends
// any release. The caller has the registry forget the hold once its release is counted.
func (h *hold) finish(end error) {
	if end == ErrReleased && h.extra != nil {
		h.e.observers.final(OnReleased, h, nil)
	}
	h.phase = ended
	h.trust.set(clock.Instant{})
	h.e.counters.held.Add(-1)
	h.e.timers.Cancel(&h.timer)
	h.done.fire(end, &h.lease.mu)
}

// releaseSoon ends a hold that is held, under mu, and gives it back in the background.
func (h *hold) releaseSoon() {
	h.letGo()
	if h.stillHeld() {
		h.finish(ErrReleased)
		giveAtOnce(h, nil)
	}
}

// setContended records that a waiter in another process is behind this hold, under mu. There are two sources of that: a
// message, which is sent once, for the first waiter that queues, and may be lost; and the answer to a renewal.
func (h *hold) setContended() {
	if h.extra == nil { // not shared
		return
	}
	shared := &h.extra.shared
	shared.contended = true
	if f := shared.onContended; f != nil {
		shared.onContended = nil
		h.lease.mu.afterUnlock(f)
	}
}

// state returns what Holds shows of the hold, and whether it has not ended, under mu.
func (h *hold) state() (s HoldState, stands bool) {
	now := h.e.clock.Now()
	if h.expire(now); h.phase == ended {
		return s, false
	}
	s = HoldState{
		Name: h.name, Owner: h.owner(), Hold: h.id, Meta: h.terms.Meta, Mode: h.mode, Token: h.token(),
		Shared: h.block() > 0, Converts: !h.isStanding(),
	}
	if h.phase == asking || h.provisional {
		s.Asking, s.Token, s.Age = true, 0, now.Mono-h.begun
		if h.asking != nil {
			s.Holder, s.Unreachable = h.asking.holder, h.asking.cutOff()
		}
		return s, true
	}
	waited := time.Duration(h.waited) * time.Millisecond
	s.Age, s.Left = now.Mono-h.begun-waited, h.ends()-now.Mono
	trusted := h.keeping.ttl()
	if h.keeping.handOff {
		trusted = h.terms.handoffTTL
	}
	if s.RenewalLate = h.keeping.due != clock.Never && h.trust.left(now) < trusted/2; s.RenewalLate {
		s.Failure = h.keeping.failure
	}
	return s, true
}

// trust is a hold's deadline: the time until which a quorum of its votes is trusted. clock.Drift.Trusted counts the
// trust in each vote from before its request was sent. The deadline is written under the lease's mutex and read with or
// without it. The two clocks are stored one after the other, and trust needs both of them. So a reader without the
// mutex that sees only the first store trusts the hold no longer than before where the deadline moves forward. Where a
// shorter TTL or the end moves it back, that reader trusts the hold no longer than until the new deadline.
type trust struct{ mono, wall atomic.Int64 } // ns; 0 if the hold does not stand

func (t *trust) until() clock.Instant {
	return clock.Instant{Mono: time.Duration(t.mono.Load()), Wall: time.Duration(t.wall.Load())}
}

func (t *trust) set(until clock.Instant) {
	t.mono.Store(int64(until.Mono))
	t.wall.Store(int64(until.Wall))
}

func (t *trust) left(now clock.Instant) time.Duration { return t.until().Mono - now.Mono }

// What follows is for several masters: the operations that a ballot asks for, sent through the pipelines.

// perform sends the operations that the ballot asks for, under mu.
func (h *hold) perform(actions []ballot.Action) {
	if len(actions) == 0 {
		return
	}
	proposal := h.e.tokens.proposal() // one for all masters, so that their answers agree
	for _, action := range actions {
		m := h.e.masters[action.Master]
		v := voter{h, m}
		call := transport.Call{Vote: m.Vote(proposal)}
		// Renewals and regains have a schedule of their own.
		switch action.Op {
		case ballot.Ask:
			// Beyond what it has given back there: a smaller token would not count.
			h.asking.request(m, h.e.tokens.proposalAfter(action.Token))
		case ballot.Yield, ballot.Leave:
			yield := wire.Yield{Hold: h.id, Token: action.Token, Leave: action.Op == ballot.Leave}
			call.Script, call.Args = h.e.scripts.of(m).yield, yield.Args(nil)
			v.post(call, wire.ReadYield, func(r wire.HoldReply, a ballot.Answer, err error) {
				// The master may have kept the grant, with a new token, or may have granted the hold again at once.
				h.ballot.Vote(m.Index).Yielded(action.Token, a)
				h.ballot.Vote(m.Index).Block(r.Token, r.First)
				if asks := h.asking; asks != nil {
					if asks.decide(); h.phase == asking { // behind an older hold, if the grant went to one
						asks.enqueue(m, schedule.Answer{Wake: r.Left}, err)
					}
				}
			})
		case ballot.Raise:
			call.Script, call.Args = h.e.scripts.of(m).raise, wire.Raise{Hold: h.id, Token: action.Token}.Args(nil)
			v.post(call, wire.ReadRaise, func(_ wire.HoldReply, a ballot.Answer, _ error) {
				// A vote for the target only if the master answers that it has counted the target (case raise-unheld: a raise of
				// a hold that was gone counted a vote that was never kept).
				h.ballot.Vote(m.Index).Raised(action.Token, a)
				h.changed(m)
			})
		}
	}
}

// sharedHold is what a hold needs that goroutines of the process share: a block of tokens, and whether another process
// waits for the lock. The lease's mutex guards it.
//
// A token block begins with the token that any other grant would get, has the size that was asked for, and ends at most
// a second ahead of the master's clock. Several masters would each cut it off at their own clock, so the client asks
// for less before that (tokens.budget). Each master reports where its block begins; the lease may use the tokens from
// the largest of these on. Raises, renewals and releases name the last token, which is the master's counter.
type sharedHold struct {
	block       int                  // size of the token block to ask for; 0: the hold is not shared
	first       fencing.Token        // first token of the granted block
	tokenInUse  func() fencing.Token // see Request
	contended   bool                 // set until the hold ends, or until ResetContended
	onContended func()               // called once when contended is set; nil before OnContended and after the call
}

// inUse returns the token of the work that the hold protects now: of a shared hold one of its block, which ends with
// last. A conversion that is under way has not begun to use its own block.
func (s *sharedHold) inUse(last fencing.Token) fencing.Token {
	if s.tokenInUse != nil {
		if token := s.tokenInUse(); s.first <= token && token < last {
			return token
		}
	}
	return last
}

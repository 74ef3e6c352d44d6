package engine

import (
	"cmp"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// keeping renews a hold that is held: it decides when, has the round under way, and says why the hold was not renewed.
// Of the hold it uses four things: its ends, its votes, post and lose. The lease's mutex guards it, and all methods are
// called under it but for answered.
type keeping struct {
	of      *hold
	due     time.Duration // clock.Never for none, and where the hold is not to be renewed
	confirm bool          // set for a hand-off, which is short until its first renewal
	handOff bool          // the hold is a hand-off that no renewal has confirmed
	safe    bool          // for the hook of holds at risk: it was not called since the last renewal
	again   bool          // start another round as soon as a quorum confirms this one
	stands  bool          // a quorum has confirmed the last round that was started
	round   *round        // under way
	failure error         // since a quorum last renewed: NodeFailures if the masters that failed are known
}

// round is one renewal on all masters. An answer counts for the vote of its master, independent of the round that asked
// for it. The round itself serves only the goroutines that wait for it and the schedule of the next round.
type round struct {
	sent    clock.Instant
	waiters []chan error // of Renew
}

const (
	renewJitter = 0.05 // so that leases that begin together do not renew together forever
	renewTicks  = 20   // ticks in a renewal interval; leases due in the same tick are renewed in one call
	retryShare  = 8    // a failed renewal is retried after this part of the remaining trust
	retryMin    = 5 * time.Millisecond
	lateShare   = 10 // a process that was late for this part of the wait for an answer may have caused the wait
)

// plan schedules the next renewal at a third of the remaining time, so that two may fail. The jitter makes it earlier
// and never later, so that it takes nothing from the time for retries. A hand-off is renewed until a quorum has
// confirmed it, even if the caller wants no renewals, because it lasts only for a short time.
func (k *keeping) plan(now clock.Instant) {
	h := k.of
	k.due, k.safe = clock.Never, false
	if h.terms.Renew || k.confirm {
		// Due times are rounded down to ticks, so that renewals of leases of about the same age share a call.
		third := (h.trust.until().Mono - now.Mono) / 3
		due := now.Mono + third - time.Duration(renewJitter*rand.Float64()*float64(third))
		k.due = max(due-due%max(third/renewTicks, 1), now.Mono+1)
		k.safe = h.e.observers.hooks.Of[OnAtRisk] != nil
	}
}

// riskAt returns when the hold is reported as at risk: a third of its time is left, and no renewal was confirmed since
// the first third. A limit that ends the lease before its trust is no risk.
func (k *keeping) riskAt(now clock.Instant) time.Duration {
	h := k.of
	until := h.trust.until().Mono
	if h.extra.limit <= until {
		return clock.Never
	}
	span := k.trustedTTL(k.ttl(), now)
	if k.handOff {
		span = h.terms.handoffTTL
	}
	return until - span/3
}

// next returns when fire must be called.
func (k *keeping) next(now clock.Instant) time.Duration {
	at := k.due
	if k.round != nil {
		at = k.round.sent.Mono + k.stallAfter()
	}
	if k.safe {
		at = min(at, k.riskAt(now))
	}
	return at
}

// stallAfter returns how long a round waits for a quorum: the node timeout, and for slow links their round trip in
// addition. It determines when the next attempt starts, not how long the lease is trusted. The lease is trusted until
// its deadline, independent of any round.
func (k *keeping) stallAfter() time.Duration {
	return k.of.e.cfg.NodeTimeout + k.of.e.tokens.longestRoundTrip()
}

// fire reports a hold at risk, and starts the round that is due or ends the round that has stalled. There is one round
// at a time. A second concurrent round would send the same requests to the same masters, and the later answer implies
// the earlier one.
func (k *keeping) fire(now clock.Instant) {
	if k.safe && now.Mono >= k.riskAt(now) {
		k.safe = false
		k.of.e.observers.offer(OnAtRisk, k.of, nil, k.of.trust.left(now))
	}
	switch {
	case now.Mono < k.next(now):
	case k.round != nil:
		k.stalled(now)
	default:
		k.start(now)
	}
}

// start posts a round to every master that has the hold and has no request in flight.
func (k *keeping) start(now clock.Instant) {
	// The round begins before its first request leaves, because its trust counts from here.
	k.round, k.stands = &round{sent: now}, false
	for _, m := range k.of.e.masters {
		k.ask(m, k.of.trust.until())
	}
}

// ask posts a renewal of the round under way to one master. The renewal is useless after until. A master with a
// request in flight is asked again when that request has renewed the lease. A renewal that SetTTL has made shorter than
// the trust so far lowers the trust before it is sent. The master keeps the hold for the TTL from its arrival on, which
// is after the round began.
func (k *keeping) ask(m *transport.Master, until clock.Instant) {
	h := k.of
	vote := h.ballot.Vote(m.Index)
	if !vote.Renewing(h.token()) {
		return
	}
	ttl := k.ttl()
	if h.extra != nil && h.extra.changed != nil {
		// Less than the round's own trust, which only answers reach.
		vote.Shorten(h.e.drift.Trusted(k.round.sent, ttl).Add(-1))
		if trusted, ok := h.ballot.Votes().TrustedUntil(h.token()); ok {
			h.trust.set(trusted)
		}
	}
	renewal := &transport.Renewal{
		Renewal:  k.renewal(k.ttlArg(), h.token()),
		Deadline: until,
		Done:     func(renewed bool, err error, sent clock.Instant) { k.answered(m, ttl, renewed, err, sent) },
	}
	if id := h.id; h.block() > 0 {
		renewal.Wanted = func() {
			h.lease.mu.Lock()
			defer h.lease.mu.Unlock()
			if id == h.id && h.phase != ended {
				h.setContended()
			}
		}
	}
	if h.extra != nil {
		renewal = h.extra.mark.addTo(renewal, m.Index)
	}
	m.Renew(renewal) // it only joins a queue, so it need not wait until mu is unlocked
}

// renewal returns a renewal of the hold.
func (k *keeping) renewal(ttl wire.Millis, token fencing.Token) wire.Renewal {
	h, kind := k.of, wire.RenewWrite
	if h.mode == fencing.Read {
		kind = wire.RenewRead
	} else if h.block() > 0 {
		kind = wire.RenewShared
	}
	return wire.Renewal{Key: h.key, Hold: h.id, TTL: ttl, Kind: kind, Token: token}
}

// ttlArg returns for how long a master is to keep the hold from now on: for the TTL, or for the minimum if that is
// longer. The trust in the hold is that of the TTL.
func (k *keeping) ttlArg() wire.Millis {
	if k.of.extra != nil {
		if left := max(k.ttl(), k.minimumLeft()); left != k.of.terms.TTL {
			return wire.FormatMillis(left)
		}
	}
	return k.of.terms.ttlArg
}

// answered applies one master's answer, of any round. Trust in the answer counts from the moment this request left,
// which may be later than the start of the round, because the request may have waited in the pipeline.
func (k *keeping) answered(m *transport.Master, ttl time.Duration, renewed bool, err error, sent clock.Instant) {
	h := k.of
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	now := h.e.clock.Now()
	k.noteUnanswered(err, ttl, now)
	// An answer after the deadline is too late, whether positive or not: another holder may have entered.
	if h.expire(now); h.phase != held {
		return
	}
	if by, broken := err.(*Breaker); broken {
		h.broken(by)
		return
	}
	answer := ballot.Answer{Status: ballot.NoAnswer, Err: err}
	if err == nil {
		answer = ballot.Answer{Status: ballot.IsAbsent, Until: h.e.drift.Trusted(sent, k.trustedTTL(ttl, now))}
		k.noteAnswer(m.Index)
	} else {
		if transport.StaleMarker(err) {
			h.e.masterSet.Recheck()
		}
		k.note(m, m.Explain(err), true)
	}
	if renewed { // a server without the hold answers, and renews nothing
		answer.Status = ballot.IsGranted
		server := m.At(h.key)
		if after, ended := h.e.renewalOutages.over(server, now.Mono); ended {
			h.e.observers.info("a server renews leases again",
				slog.String("master", server.Addr()), slog.Duration("after", after))
		}
	}
	h.ballot.Vote(m.Index).Renewed(h.token(), answer, now)
	if r := k.round; r != nil && renewed && sent.Mono < r.sent.Mono { // of an earlier round
		until, ok := h.ballot.Votes().TrustedUntil(h.token()) // settle moves the trust below
		if !ok {
			until = h.trust.until()
		}
		k.ask(m, until)
	}
	late := k.round == nil && k.stands // the quorum that has confirmed the round does not need this answer
	if k.settle(now); late && err == nil && !renewed && h.phase == held {
		k.regain(now, m)
	}
}

// poll renews a shared hold, because the answer reports waiters.
func (k *keeping) poll() {
	if k.of.block() > 0 {
		k.renewNow()
	}
}

// renewNow starts a round. One that is under way may have been answered before the reason for this one, so another
// follows it.
func (k *keeping) renewNow() {
	h := k.of
	switch {
	case h.phase != held || !h.terms.Renew:
	case k.round != nil:
		k.again = true
	default:
		now := h.e.clock.Now()
		k.start(now)
		h.setTimer(now)
	}
}

// settle applies the masters' answers. The deadline is the latest time until which a quorum is trusted.
//
// A loss does not require a quorum that answers "gone". Once too many masters do not stand by the token, no quorum
// does, and these masters may form another client's quorum. Without answers the lease stands until its deadline:
// silence is not a loss, and no other hold is granted before the deadline.
func (k *keeping) settle(now clock.Instant) {
	h, votes := k.of, k.of.ballot.Votes()
	if votes.Standing(h.token()) < votes.Quorum() {
		h.lose(h.loss(Taken, nil))
		return
	}
	before := h.trust.until().Mono
	// The deadline moves back only by a shorter TTL of SetTTL: else a vote's trust only grows while its grant stands, and
	// without a quorum of standing grants the lease has just been lost.
	if until, ok := votes.TrustedUntil(h.token()); ok {
		h.trust.set(until)
	}
	// The round has succeeded once the deadline has reached its own trust, no matter which masters moved it.
	r, until, ttl := k.round, h.trust.until().Mono, k.trustedTTL(k.ttl(), now)
	switch {
	case r == nil && until > before: // a quorum has answered, but after the node timeout
		// An answer that was long on its way confirms a hand-off, but leaves little of the TTL.
		k.succeeded(now, k.confirm && until-now.Mono < ttl/2)
	case r == nil:
	case until >= h.e.drift.Trusted(r.sent, ttl).Mono: // a quorum has renewed it since
		k.succeeded(now, false)
	case !votes.MayRenew():
		k.stalled(now)
	}
	h.setTimer(now)
}

// succeeded schedules the next renewal after a quorum has confirmed one. confirm makes it an early one. Only from this
// moment on, until the next round begins, is it certain that the hold stands on a quorum. So only then are the masters
// that lost the hold asked to restore it, also one that answers later (case regain-unconfirmed of the model: an invalid
// hold was restored, with a smaller token than a hold that was granted since).
func (k *keeping) succeeded(now clock.Instant, confirm bool) {
	h := k.of
	h.e.counters.renewed.Add(1) // before a caller of Renew goes on
	k.logFailures()             // logs a minority that failed
	k.endRound(nil)
	k.confirm, k.handOff, k.failure, k.stands = confirm, false, nil, true
	if k.plan(now); k.again {
		k.again, k.due = false, now.Mono
	}
	h.e.observers.offer(OnRenewed, h, nil, 0)
	k.regain(now, h.e.masters...)
}

// regain asks those of these masters that lost the hold, or granted it with another token, to restore it.
// A quorum has just confirmed that the hold stands, so no other grant that was counted there has had a quorum. Without
// regain, a quorum of three that loses one master after the other, each for a moment, loses the lease, although never
// more than one master was away at a time.
func (k *keeping) regain(now clock.Instant, from ...*transport.Master) {
	h := k.of
	details := ""
	for _, m := range from {
		trusted, ok := h.ballot.Vote(m.Index).Regaining(h.token(), now)
		if !ok {
			continue
		}
		// A master that abstains restores the hold only if trust in its own grant was never broken. Then no other hold
		// can have been granted there, no matter what it has forgotten.
		if details == "" {
			// It waits for a master until the next renewal, and has its grant until then: no message reports it.
			details = h.details(h.e.masters.route(h.key), "", wire.FormatMillis(min(k.ttl(), time.Hour)))
		}
		regain := wire.Regain{Hold: h.id, TTL: k.ttlArg(), Token: h.token(), Details: details, Trusted: trusted}
		if own := h.ballot.Vote(m.Index).Token; own > h.token() {
			regain.Own = own
		}
		call := transport.Call{
			Script: h.e.scripts.of(m).regain, Vote: m.Vote(h.e.tokens.proposal()), Args: regain.Args(nil),
		}
		ttl := k.ttl()
		voter{h, m}.post(call, wire.ReadRegain, func(_ wire.HoldReply, a ballot.Answer, _ error) {
			vote := h.ballot.Vote(m.Index)
			vote.Regained(h.token(), a)
			vote.Shorten(h.e.drift.Trusted(now, k.trustedTTL(ttl, h.e.clock.Now()))) // as a renewal
			h.e.observers.warnOfAbsence(h, m, a)
			h.changed(m)
		})
	}
}

// stalled ends a round that cannot find a quorum, or has found none within the node timeout. Masters that have not
// answered are not asked again, and their answers still count.
func (k *keeping) stalled(now clock.Instant) {
	k.noteSilence(now)
	k.of.e.counters.renewFailed.Add(1)
	if k.due != clock.Never {
		// The interval follows from the remaining trust, so another attempt is in time even if a hand-off is very short or
		// the master comes back late.
		k.due = now.Mono + max(k.of.trust.left(now)/retryShare, retryMin)
	}
	if len(k.round.waiters) > 0 {
		k.endRound(k.unrenewed())
	}
	k.round = nil
	k.logFailures()
}

// unrenewed describes a round that has failed.
func (k *keeping) unrenewed() *Error {
	h := k.of
	causes, _ := k.failure.(NodeFailures)
	asked := h.e.drift.Trusted(k.round.sent, k.trustedTTL(k.ttl(), h.e.clock.Now()))
	failed := &Error{Op: OpRenew, Name: h.name, Need: h.e.masters.quorum(), Nodes: causes}
	failed.Kind, _ = h.e.masters.refusal(causes)
	for i := range h.e.masters {
		vote := h.ballot.Vote(i)
		renewed := vote.Counts() && vote.Token == h.token() && vote.Until.Mono >= asked.Mono
		if _, found := causes.find(i); !found && renewed {
			failed.Got++
		}
	}
	for _, cause := range causes {
		_, short := unreplicated(cause.Err)
		failed.Unknown = failed.Unknown || !short && !transport.DidNotRun(cause.Err)
	}
	return failed
}

// endRound ends the round, with the result for the goroutines that wait for it.
func (k *keeping) endRound(err error) {
	if k.round != nil {
		for _, waiter := range k.round.waiters {
			waiter <- err
		}
		k.round = nil
	}
}

// errReplaced ends the round of a hold that a conversion has replaced. Its answers do not count any more, and the lease
// stands on the new hold, with which the goroutines that wait for the round go on.
var errReplaced = errors.New("the hold was replaced")

// whyExpired returns the reason that a hold was not renewed in time. A round under way is a failure too, caused by the
// silence of the masters that have not answered: a process that stood still during a round cannot distinguish that from
// servers that did.
func (k *keeping) whyExpired(now clock.Instant) (Reason, error) {
	if k.round != nil {
		k.noteSilence(now)
	}
	switch {
	case k.failure != nil:
		// Masters that do not stand by the lease do not fail, but without them fewer failures are enough to lose it.
		for i, m := range k.of.e.masters {
			if vote := k.of.ballot.Vote(i); !vote.Counts() || vote.Token != k.of.token() {
				k.note(m, cmp.Or(vote.Err, errNotThere), false) // why its last request failed
			}
		}
		return Unreachable, k.failure
	case k.due != clock.Never:
		return Paused, nil // a renewal was due long before and this process did not start it
	default:
		return Expired, nil
	}
}

// note records why a master did not renew, as a cause of a round that stalls, and of a loss. The answer may arrive
// after its round is over; it is still the best reason known. What is known already stays, unless the reason is an
// answer. Callers receive these errors, so a recorded slice is never modified.
func (k *keeping) note(m *transport.Master, err error, answer bool) {
	known, _ := k.failure.(NodeFailures)
	i, found := known.find(m.Index)
	if found && !answer {
		return
	}
	if known = slices.Clone(known); !found {
		known = slices.Insert(known, i, NodeFailure{})
	}
	known[i] = failureOf(m, k.of.key, err)
	k.failure = known
}

// noteAnswer removes the failure of a master that renews again.
func (k *keeping) noteAnswer(master int) {
	known, _ := k.failure.(NodeFailures)
	i, found := known.find(master)
	if !found {
		return
	}
	if k.failure = nil; len(known) > 1 {
		k.failure = slices.Delete(slices.Clone(known), i, i+1)
	}
}

// noteSilence records the masters that have not answered the round. An earlier failure says more than silence, so it
// stays. If this process was late meanwhile, it may not have read an answer that came in time, or has asked late.
func (k *keeping) noteSilence(now clock.Instant) {
	h, sent := k.of, k.round.sent.Mono
	silent := &NoReply{After: now.Mono - sent}
	silence := error(silent)
	if by := h.e.timers.Delayed(sent, now.Mono); by > silent.After/lateShare {
		silence = &ProcessLate{By: by, Silence: silent}
	}
	for i, m := range h.e.masters {
		if h.ballot.Votes().OwesRenewal(i) {
			k.note(m, silence, false)
		}
	}
	if k.failure == nil {
		k.failure = silence
	}
}

// errNotThere is the failure of a master that has answered, and has nothing to renew: it has lost the hold, or never
// had it.
var errNotThere = errors.New("does not have the hold")

// logFailures logs which servers did not renew the lease, under its mutex: at most one line a server and minute,
// independent of how many leases it has. The loss of a lease is reported for each lease.
func (k *keeping) logFailures() {
	h := k.of
	causes, _ := k.failure.(NodeFailures)
	for _, cause := range causes {
		server := h.e.masters[cause.Index].At(h.key)
		_, line := h.e.renewalOutages.due(server, h.e.clock.Now().Mono, 0, &h.e.observers.limit)
		if !line {
			continue
		}
		h.e.observers.warn("server does not renew leases; retrying until their deadlines",
			slog.String("master", server.Addr()), slog.Int("leases", h.e.registry.countOn(server, h.e.clock.Now())),
			slog.String("lock", h.name), slog.Any("error", cause.Err))
	}
}

// countOn returns the number of trusted leases that have their locks on this server.
func (r *registry) countOn(server *transport.Node, now clock.Instant) (n int) {
	for h := range r.each {
		on := func(m *transport.Master) bool { return m.At(h.key) == server }
		if !h.trust.until().Passed(now) && slices.ContainsFunc(h.e.masters, on) {
			n++
		}
	}
	return n
}

// warnOfAbsence notes that a master does not take the hold back, and logs it once, under the lease's mutex. The first
// answers of that kind are expected where another hold is yet to yield.
func (o *observers) warnOfAbsence(h *hold, m *transport.Master, a ballot.Answer) {
	const expected = 2
	if a.Status == ballot.IsGranted || a.Err != nil || h.unregained > expected {
		return
	}
	if h.unregained++; h.unregained > expected {
		o.warn("a lease stands without a master that does not take it back",
			slog.String("master", m.At(h.key).Addr()), slog.String("lock", h.name),
			slog.Int("masters", h.ballot.Votes().Standing(h.token())))
	}
}

package engine

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// renewal is when a hold is renewed next, and the round under way. The lease's mutex guards it.
type renewal struct {
	due     time.Duration // clock.Never for none
	confirm bool          // set for a hand-off, which is short until its first renewal
	handOff bool          // the hold is a hand-off that no renewal has confirmed
	safe    bool          // for the hook of holds at risk: it was not called since the last renewal
	again   bool          // start another round as soon as a quorum confirms this one
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

// planRenewal schedules the next renewal at a third of the remaining time, so that two may fail. The jitter makes it
// earlier and never later, so that it takes nothing from the time for retries.
func (h *hold) planRenewal(now clock.Instant) {
	h.renewal.due, h.renewal.safe = clock.Never, false
	if h.needsRenewal() {
		// Due times are rounded down to ticks, so that renewals of leases of about the same age share a call.
		third := h.trust.left(now) / 3
		due := now.Mono + third - time.Duration(renewJitter*rand.Float64()*float64(third))
		tick := max(third/renewTicks, 1)
		h.renewal.due = max(due-due%tick, now.Mono+1)
		h.renewal.safe = h.e.observers.hooks.Of[OnAtRisk] != nil
	}
}

// riskAt returns when the hold is reported as at risk: a third of its time is left, and no renewal was confirmed since
// the first third. A limit that ends the lease before its trust is no risk.
func (h *hold) riskAt() time.Duration {
	until := h.trust.until().Mono
	if h.extra.end() <= until {
		return clock.Never
	}
	span := h.trustedTTL(h.ttl(), h.e.clock.Now())
	if h.renewal.handOff {
		span = h.terms.handoffTTL
	}
	return until - span/3
}

// planRetry schedules another attempt after a failed renewal. The interval follows from the remaining trust, so another
// attempt is in time even if a hand-off is very short or the master comes back late.
func (h *hold) planRetry(now clock.Instant) {
	h.renewal.due = clock.Never
	if h.needsRenewal() {
		h.renewal.due = now.Mono + max(h.trust.left(now)/retryShare, retryMin)
	}
}

// needsRenewal reports whether the hold is to be renewed at all. A hand-off is renewed until a quorum has confirmed
// it, even if the caller wants no renewals, because it lasts only for a short time.
func (h *hold) needsRenewal() bool { return h.terms.Renew || h.renewal.confirm }

// nextRenewal returns the time at which fireRenewal must be called.
func (h *hold) nextRenewal() time.Duration {
	if h.renewal.round != nil {
		return h.renewal.round.sent.Mono + h.e.stallAfter()
	}
	return h.renewal.due
}

// stallAfter returns how long a round waits for a quorum: the node timeout, and for slow links their round trip in
// addition. It determines when the next attempt starts, not how long the lease is trusted. The lease is trusted until
// its deadline, independent of any round.
func (e *Engine) stallAfter() time.Duration { return e.cfg.NodeTimeout + e.tokens.longestRoundTrip() }

// fireRenewal starts the round that is due, or ends the round that has stalled. There is one round at a time. A second
// concurrent round would send the same requests to the same masters, and the later answer implies the earlier one.
func (h *hold) fireRenewal(now clock.Instant) {
	switch {
	case now.Mono < h.nextRenewal():
	case h.renewal.round != nil:
		h.roundStalled(now)
	default:
		h.startRound(now)
	}
}

// startRound posts a round to every master that has the hold and has no request in flight.
func (h *hold) startRound(now clock.Instant) *round {
	// The round begins before its first request leaves, because its trust counts from here.
	r := &round{sent: now}
	h.renewal.round = r
	for _, m := range h.e.masters {
		h.askToRenew(m, h.trust.until())
	}
	return r
}

// askToRenew posts a renewal of the round under way to one master. The renewal is useless after until. A master with a
// request in flight is asked again when that request has renewed the lease. A renewal that SetTTL has made shorter than
// the trust so far lowers the trust before it is sent. The master keeps the hold for the TTL from its arrival on, which
// is after the round began.
func (h *hold) askToRenew(m *transport.Master, until clock.Instant) {
	vote := h.ballot.Vote(m.Index)
	if !vote.Renewing(h.token()) {
		return
	}
	ttl := h.ttl()
	if h.extra != nil && h.extra.changed != nil {
		// Less than the round's own trust, which only answers reach.
		vote.Shorten(h.e.drift.Trusted(h.renewal.round.sent, ttl).Add(-1))
		if trusted, ok := h.ballot.Votes().TrustedUntil(h.token()); ok {
			h.trust.set(trusted)
		}
	}
	renewal := &transport.Renewal{
		Renewal:  wire.Renewal{Key: h.key, Hold: h.id, TTL: h.ttlArg(), Token: h.token()},
		Deadline: until,
		Done:     func(renewed bool, err error, sent clock.Instant) { h.renewed(m, ttl, renewed, err, sent) },
	}
	if id := h.id; h.block() > 0 {
		renewal.Wanted = func() { h.hearContended(id) }
	}
	m.Renew(markOf(h).addTo(renewal, m.Index)) // it only joins a queue, so it need not wait until mu is unlocked
}

// renewed applies one master's answer, of any round. Trust in the answer counts from the moment this request left. That
// may be later than the start of the round, because the request may have waited in the pipeline.
func (h *hold) renewed(m *transport.Master, ttl time.Duration, renewed bool, err error, sent clock.Instant) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	now := h.e.clock.Now()
	h.noteUnanswered(err, ttl, now)
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
		answer = ballot.Answer{Status: ballot.IsAbsent, Until: h.e.drift.Trusted(sent, h.trustedTTL(ttl, now))}
		h.renewal.noteAnswer(m.Index)
	} else {
		if transport.StaleMarker(err) {
			h.e.masterSet.Recheck()
		}
		h.renewal.noteFailure(NodeFailure{Index: m.Index, Addr: m.At(h.key.LockHash()).Addr(), Err: m.Explain(err)})
	}
	if renewed { // a server without the hold answers, and renews nothing
		answer.Status = ballot.IsGranted
		h.e.endRenewalOutage(m.At(h.key.LockHash()), now)
	}
	h.ballot.Vote(m.Index).Renewed(h.token(), answer, now)
	if r := h.renewal.round; r != nil && renewed && sent.Mono < r.sent.Mono { // of an earlier round
		until, ok := h.ballot.Votes().TrustedUntil(h.token()) // settle moves the trust below
		if !ok {
			until = h.trust.until()
		}
		h.askToRenew(m, until)
	}
	h.settle(now)
}

// endRenewalOutage records that the server renews leases, and logs the end of an outage.
func (e *Engine) endRenewalOutage(server *transport.Node, now clock.Instant) {
	if after, ended := e.renewalOutages.over(server, now.Mono); ended {
		e.observers.info("a server renews leases again",
			slog.String("master", server.Addr()), slog.Duration("after", after))
	}
}

// settle applies the masters' answers, under mu. The deadline is the latest time until which a quorum is trusted.
//
// A loss does not require a quorum that answers "gone". Once too many masters do not stand by the token, no quorum
// does, and these masters may form another client's quorum. Without answers the lease stands until its deadline:
// silence is not a loss, and no other hold is granted before the deadline.
func (h *hold) settle(now clock.Instant) {
	if h.ballot.Votes().Standing(h.token()) < h.ballot.Votes().Quorum() {
		h.lose(h.loss(Taken, nil))
		if r := h.renewal.round; r != nil {
			r.end(h.done.err())
		}
		return
	}
	before := h.trust.until()
	// The deadline moves back only by a shorter TTL of SetTTL: else a vote's trust only grows while its grant stands, and
	// without a quorum of standing grants the lease has just been lost.
	if until, ok := h.ballot.Votes().TrustedUntil(h.token()); ok {
		h.trust.set(until)
	}
	h.settleRound(before, now)
	h.setTimer()
}

// settleRound ends the round if a quorum has answered, or if none can any more. The round has succeeded once the
// deadline has reached the round's own trust, no matter which masters moved it.
func (h *hold) settleRound(before, now clock.Instant) {
	r, ttl := h.renewal.round, h.trustedTTL(h.ttl(), now)
	switch {
	case r == nil && h.trust.until().Mono > before.Mono: // a quorum has answered, but after the node timeout
		// An answer that was long on its way confirms a hand-off, but leaves little of the TTL.
		h.roundSucceeded(now, h.renewal.confirm && h.trust.left(now) < ttl/2)
	case r == nil:
	case h.trust.until().Mono >= h.e.drift.Trusted(r.sent, ttl).Mono: // a quorum has renewed it since
		h.roundSucceeded(now, false)
		r.end(nil)
	case !h.ballot.Votes().MayRenew():
		h.roundStalled(now)
	}
}

// roundSucceeded schedules the next renewal after a quorum has confirmed one. confirm makes it an early one. Only at
// this moment is it certain that the hold stands on a quorum, so only now are the masters that lost the hold asked to
// restore it (case regain-unconfirmed of the model: an invalid hold was restored, with a smaller token than a hold that
// was granted since).
func (h *hold) roundSucceeded(now clock.Instant, confirm bool) {
	h.logFailures() // logs a minority that failed
	h.renewal.confirm, h.renewal.handOff, h.renewal.round, h.renewal.failure = confirm, false, nil, nil
	h.e.counters.renewed.Add(1)
	if h.planRenewal(now); h.renewal.again {
		h.renewal.again, h.renewal.due = false, now.Mono
	}
	h.e.observers.offer(OnRenewed, h, nil, 0)
	h.regain(now)
}

// regain asks masters that lost the hold, or granted it with another token, to restore it with its token, under mu. A
// quorum has just confirmed that the hold stands, so no other grant that was counted there has had a quorum. Without
// regain, a quorum of three that loses one master after the other, each for a moment, loses the lease, although never
// more than one master was away at a time.
func (h *hold) regain(now clock.Instant) {
	details := ""
	for _, m := range h.e.masters {
		trusted, ok := h.ballot.Vote(m.Index).Regaining(h.token(), now)
		if !ok {
			continue
		}
		// A master that abstains restores the hold only if trust in its own grant was never broken. Then no other hold
		// can have been granted there, no matter what it has forgotten.
		if details == "" {
			// It waits for a master until the next renewal, and has its grant until then: no message reports it.
			details = h.details(h.e.route(h.key.LockHash()), "", wire.FormatMillis(min(h.ttl(), time.Hour)))
		}
		regain := wire.Regain{Hold: h.id, TTL: h.ttlArg(), Token: h.token(), Details: details, Trusted: trusted}
		call := transport.Call{
			Script: h.e.scriptsOf(m).regain, Vote: m.Vote(h.e.tokens.proposal()), Args: regain.Args(nil),
		}
		ttl := h.ttl()
		h.post(m, call, wire.ReadRegain, func(_ wire.HoldReply, a ballot.Answer, _ error) {
			vote := h.ballot.Vote(m.Index)
			vote.Regained(h.token(), a)
			vote.Shorten(h.e.drift.Trusted(now, h.trustedTTL(ttl, h.e.clock.Now()))) // as a renewal
			h.e.observers.warnOfAbsence(h, m, a)
			h.changed(m)
		})
	}
}

// roundStalled ends a round that cannot find a quorum, or has found none within the node timeout. Masters that have not
// answered are not asked again, and their answers still count.
func (h *hold) roundStalled(now clock.Instant) {
	r := h.renewal.round
	h.noteSilence(now)
	h.renewal.round = nil
	h.e.counters.renewFailed.Add(1)
	h.planRetry(now)
	if len(r.waiters) > 0 {
		r.end(h.unrenewed(r))
	}
	h.logFailures()
}

// unrenewed describes a round that has failed, under mu.
func (h *hold) unrenewed(r *round) *Error {
	causes, _ := h.renewal.failure.(NodeFailures)
	asked := h.e.drift.Trusted(r.sent, h.trustedTTL(h.ttl(), h.e.clock.Now()))
	failed := &Error{Op: OpRenew, Name: h.name, Need: h.e.quorum(), Nodes: causes}
	failed.Kind, _ = h.e.refusal(causes)
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

// end sends the result to the goroutines that wait for the round.
func (r *round) end(err error) {
	for _, waiter := range r.waiters {
		waiter <- err
	}
	r.waiters = nil
}

// abandonRound ends the round of a hold that a conversion has replaced. Its answers do not count any more, and the end
// of the lease does not end the wait either, because it stands on the new hold. The goroutines that wait for the
// round continue with the new hold.
func (h *hold) abandonRound() {
	if h.renewal.round == nil {
		return
	}
	for _, waiter := range h.renewal.round.waiters {
		close(waiter)
	}
	h.renewal.round = nil
}

// whyExpired returns the reason that a hold was not renewed in time. A round under way is a failure too, caused by the
// silence of the masters that have not answered: a process that stood still during a round cannot distinguish that from
// servers that did.
func (h *hold) whyExpired(now clock.Instant) (Reason, error) {
	if h.renewal.round != nil {
		h.noteSilence(now)
	}
	switch {
	case h.renewal.failure != nil:
		h.noteAbsence()
		return Unreachable, h.renewal.failure
	case h.renewal.due != clock.Never:
		return Paused, nil // a renewal was due long before and this process did not start it
	default:
		return Expired, nil
	}
}

// noteFailure records why a master did not renew, as a cause of a round that stalls, and of a loss. The answer may
// arrive after its round is over; it is still the best reason known. Callers receive these errors, so a recorded slice
// is never modified.
func (n *renewal) noteFailure(failure NodeFailure) {
	known, _ := n.failure.(NodeFailures)
	i, found := known.find(failure.Index)
	if known = slices.Clone(known); found {
		known[i] = failure
	} else {
		known = slices.Insert(known, i, failure)
	}
	n.failure = known
}

// noteAnswer removes the failure of a master that renews again.
func (n *renewal) noteAnswer(master int) {
	known, _ := n.failure.(NodeFailures)
	i, found := known.find(master)
	if !found {
		return
	}
	if n.failure = nil; len(known) > 1 {
		n.failure = slices.Delete(slices.Clone(known), i, i+1)
	}
}

// noteSilence records the masters that have not answered the round. An earlier failure says more than silence, so it
// stays.
func (h *hold) noteSilence(now clock.Instant) {
	silence := h.silence(now)
	for i, m := range h.e.masters {
		known, _ := h.renewal.failure.(NodeFailures)
		if _, found := known.find(i); !found && h.ballot.Votes().OwesRenewal(i) {
			h.renewal.noteFailure(NodeFailure{Index: i, Addr: m.At(h.key.LockHash()).Addr(), Err: silence})
		}
	}
	if h.renewal.failure == nil {
		h.renewal.failure = silence
	}
}

// silence returns the failure of a master that has not answered the round. If this process was late meanwhile, it may
// not have read an answer that came in time, or has asked late.
func (h *hold) silence(now clock.Instant) error {
	sent := h.renewal.round.sent.Mono
	silence := &NoReply{After: now.Mono - sent}
	if by := h.e.timers.Delayed(sent, now.Mono); by > silence.After/lateShare {
		return &ProcessLate{By: by, Silence: silence}
	}
	return silence
}

// noteAbsence records the masters that do not stand by the lease. They do not fail, but without them fewer failures are
// enough to lose the lease.
func (h *hold) noteAbsence() {
	known, _ := h.renewal.failure.(NodeFailures)
	for i, m := range h.e.masters {
		vote := h.ballot.Vote(i)
		if _, found := known.find(i); found || vote.Counts() && vote.Token == h.token() {
			continue
		}
		err := vote.Err // why its last request failed
		if err == nil {
			err = errNotThere
		}
		h.renewal.noteFailure(NodeFailure{Index: i, Addr: m.At(h.key.LockHash()).Addr(), Err: err})
	}
}

// errNotThere is the failure of a master that has answered, and has nothing to renew: it has lost the hold, or never
// had it.
var errNotThere = errors.New("does not have the hold")

// logFailures logs which servers did not renew the lease, under its mutex: one line for each server at growing
// intervals, independent of how many leases it has. The loss of a lease is reported for each lease.
func (h *hold) logFailures() {
	causes, _ := h.renewal.failure.(NodeFailures)
	for _, cause := range causes {
		server := h.e.masters[cause.Index].At(h.key.LockHash())
		pause, due := h.e.renewalOutages.due(server, h.e.clock.Now().Mono, 0)
		if !due {
			continue
		}
		h.e.observers.warn("server does not renew leases; retrying until their deadlines",
			slog.String("master", server.Addr()), slog.Int("leases", h.e.registry.countOn(server, h.e.clock.Now())),
			slog.String("lock", h.name), slog.Duration("next_report", pause), slog.Any("error", cause.Err))
	}
}

// countOn returns the number of trusted leases that have their locks on this server.
func (r *registry) countOn(server *transport.Node, now clock.Instant) (n int) {
	for _, h := range r.snapshot() {
		on := func(m *transport.Master) bool { return m.At(h.key.LockHash()) == server }
		if !h.trust.until().Passed(now) && slices.ContainsFunc(h.e.masters, on) {
			n++
		}
	}
	return n
}

// Renew extends the lease now, or waits for the renewal that is under way. It returns nil when a quorum has confirmed,
// Err's value when the lease has ended, and *Error when the lease stands but the renewal is not confirmed, or ctx
// has ended. During a conversion Renew extends the new hold, although the TTL of that hold may have begun long before
// this call.
func (l *Lease) Renew(ctx context.Context) error {
	var cause error
	if ctx.Err() != nil { // not under mu: it is the caller's code
		cause = errs.Cause(ctx)
	}
	h := l.lock()
	now := h.e.clock.Now()
	if h.expire(now); h.phase != held {
		defer l.mu.Unlock()
		return l.done.err()
	}
	if cause != nil {
		defer l.mu.Unlock()
		return &Error{Op: OpRenew, Kind: Undecided, Name: h.name, Err: cause}
	}
	r := h.renewal.round
	if r == nil {
		r = h.startRound(now)
		h.setTimer() // for the end of the round, even if no renewal is scheduled
	}
	outcome := make(chan error, 1)
	r.waiters = append(r.waiters, outcome)
	l.mu.Unlock()
	select {
	case err, ended := <-outcome:
		if !ended { // abandoned
			return l.Renew(ctx)
		}
		return err
	case <-ctx.Done():
		return &Error{Op: OpRenew, Kind: Undecided, Name: h.name, Err: errs.Cause(ctx)}
	case <-l.Done(): // while the round is under way
		return l.Err()
	}
}

// changedTTL is the TTL that SetTTL has given to a hold. A renewal with an earlier, shorter one may arrive after a
// renewal with this one, and set the expiry back.
type changedTTL struct {
	ttl      time.Duration
	until    time.Duration // from then on, by the monotonic clock, no renewal from before the change arrives
	shortest time.Duration // of those that may arrive; math.MaxInt64 if all are answered
	longest  time.Duration // that a master was ever asked for
}

// ttl returns for how long a renewal extends the hold, under mu.
func (h *hold) ttl() time.Duration {
	if h.extra == nil || h.extra.changed == nil {
		return h.terms.TTL
	}
	return h.extra.changed.ttl
}

// longestTTL returns for how long a master may keep the hold after the last request, under mu.
func (h *hold) longestTTL() time.Duration {
	if h.extra == nil || h.extra.changed == nil {
		return h.terms.TTL
	}
	return h.extra.changed.longest
}

// outlived is for how long after a change of the TTL a renewal from before it may arrive.
const outlived = lateness + batchTimeout

// trustedTTL returns for how long from its sending a renewal is trusted that has just been answered, under mu: for its
// TTL, or for a shorter one of a renewal that may still arrive.
func (h *hold) trustedTTL(ttl time.Duration, now clock.Instant) time.Duration {
	if h.extra == nil || h.extra.changed == nil || now.Mono >= h.extra.changed.until {
		return ttl
	}
	return min(ttl, h.extra.changed.shortest)
}

// noteUnanswered records, under mu, that a renewal with this TTL may arrive later if it failed without an answer. Every
// answer to the script renew is passed here: the other scripts move no expiry of a grant that has the lease's token. A
// renewal with the TTL of now, or with a longer one, sets no expiry back.
func (h *hold) noteUnanswered(err error, ttl time.Duration, now clock.Instant) {
	if err == nil || transport.DidNotRun(err) {
		return
	}
	h.e.unansweredAt.Store(int64(now.Mono))
	if ttl < h.ttl() {
		c := h.extra.changed
		c.shortest, c.until = min(c.shortest, ttl), max(c.until, now.Mono+lateness)
	}
}

// changeTTL sets the TTL of all renewals from now on, under mu. Trust in the hold falls with the first of them. A
// renewal of this hold may still arrive only if one of this engine had no answer lately.
func (h *hold) changeTTL(ttl time.Duration, now clock.Instant) {
	if h.extra == nil {
		h.extra = new(extra)
	}
	c := &changedTTL{
		ttl: ttl, until: now.Mono + outlived, shortest: math.MaxInt64, longest: max(ttl, h.longestTTL()),
	}
	if before := h.extra.changed; before != nil && now.Mono < before.until {
		c.shortest = before.shortest
	}
	if at := time.Duration(h.e.unansweredAt.Load()); at > 0 && now.Mono < at+outlived {
		c.shortest = min(c.shortest, h.ttl())
	}
	h.extra.changed = c
}

// SetTTL changes the TTL of the lease from now on, and renews it once as Renew does, with the same errors. It waits for
// a renewal under way, whose TTL is the one before. After a failure the TTL is the new one as well. 0 leaves the TTL as
// it is.
func (l *Lease) SetTTL(ctx context.Context, ttl time.Duration) error {
	for ctx.Err() == nil { // not under mu: it is the caller's code
		h := l.lock()
		now := h.e.clock.Now()
		if h.expire(now); h.phase != held {
			l.mu.Unlock()
			break
		}
		r := h.renewal.round
		if r == nil {
			if ttl > 0 {
				h.changeTTL(ttl, now)
			}
			l.mu.Unlock()
			break
		}
		over := make(chan error, 1)
		r.waiters = append(r.waiters, over)
		l.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
		case <-l.Done():
		}
	}
	return l.Renew(ctx)
}

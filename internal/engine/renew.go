package engine

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/ctxerr"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// renewal is when a lease is renewed next, and the round under way. The lease's mutex guards it.
type renewal struct {
	due     time.Duration // clock.Never for none
	confirm bool          // set for a hand-off, which is short until its first renewal
	handOff bool          // the hold is a hand-off that no renewal has confirmed
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
func (l *Lease) planRenewal(now clock.Instant) {
	l.renewal.due = clock.Never
	if l.needsRenewal() {
		// Due times are rounded down to ticks, so that renewals of leases of about the same age share a call.
		third := l.trust.left(now) / 3
		due := now.Mono + third - time.Duration(renewJitter*rand.Float64()*float64(third))
		tick := max(third/renewTicks, 1)
		l.renewal.due = max(due-due%tick, now.Mono+1)
	}
}

// planRetry schedules another attempt after a failed renewal. The interval follows from the remaining trust, so another
// attempt is in time even if a hand-off is very short or the master comes back late.
func (l *Lease) planRetry(now clock.Instant) {
	l.renewal.due = clock.Never
	if l.needsRenewal() {
		l.renewal.due = now.Mono + max(l.trust.left(now)/retryShare, retryMin)
	}
}

// needsRenewal reports whether the lease is to be renewed at all. A hand-off is renewed until a quorum has confirmed
// it, even if the caller wants no renewals, because it lasts only for a short time.
func (l *Lease) needsRenewal() bool { return l.terms.Renew || l.renewal.confirm }

// nextRenewal returns the time at which fireRenewal must be called.
func (l *Lease) nextRenewal() time.Duration {
	if l.renewal.round != nil {
		return l.renewal.round.sent.Mono + l.e.stallAfter()
	}
	return l.renewal.due
}

// stallAfter returns how long a round waits for a quorum: the node timeout, and for slow links their round trip in
// addition. It determines when the next attempt starts, not how long the lease is trusted. The lease is trusted until
// its deadline, independent of any round.
func (e *Engine) stallAfter() time.Duration { return e.cfg.NodeTimeout + e.tokens.longestRoundTrip() }

// fireRenewal starts the round that is due, or ends the round that has stalled. There is one round at a time. A second
// concurrent round would send the same requests to the same masters, and the later answer implies the earlier one.
func (l *Lease) fireRenewal(now clock.Instant) {
	switch {
	case now.Mono < l.nextRenewal():
	case l.renewal.round != nil:
		l.roundStalled(now)
	default:
		l.startRound(now)
	}
}

// startRound posts a round to every master that has the hold and has no request in flight.
func (l *Lease) startRound(now clock.Instant) *round {
	// The round begins before its first request leaves, because its trust counts from here.
	r := &round{sent: now}
	l.renewal.round = r
	for _, m := range l.e.masters {
		l.askToRenew(m, l.trust.until())
	}
	return r
}

// askToRenew posts a renewal to one master. The renewal is useless after until. A master with a request in flight is
// asked again when that request has renewed the lease.
func (l *Lease) askToRenew(m *transport.Master, until clock.Instant) {
	if !l.ballot.Vote(m.Index).Renewing(l.token()) {
		return
	}
	renewal := &transport.Renewal{
		Renewal:  wire.Renewal{Key: l.key, Hold: l.id, TTL: l.terms.ttlArg, Token: l.token()},
		Deadline: until,
		Done:     func(renewed bool, err error, sent clock.Instant) { l.renewed(m, renewed, err, sent) },
	}
	if hold := l.id; l.block() > 0 {
		renewal.Wanted = func() { l.hearContended(hold) }
	}
	m.Renew(renewal) // it only joins a queue, so it need not wait until mu is unlocked
}

// renewed applies one master's answer, of any round. Trust in the answer counts from the moment this request left. That
// may be later than the start of the round, because the request may have waited in the pipeline.
func (l *Lease) renewed(m *transport.Master, renewed bool, err error, sent clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.e.clock.Now()
	// An answer after the deadline is too late, whether positive or not: another holder may have entered.
	if l.expire(now); l.phase != held {
		return
	}
	answer := ballot.Answer{Status: ballot.IsGranted, Until: l.e.drift.Trusted(sent, l.terms.TTL)}
	switch {
	case err != nil:
		if transport.Unread(err) {
			l.e.masterSet.Recheck()
		}
		answer = ballot.Answer{Status: ballot.NoAnswer, Err: err}
		l.renewal.noteFailure(NodeFailure{Index: m.Index, Addr: m.At(l.key.Lock()).Addr(), Err: m.Explain(err)})
	case !renewed:
		answer.Status = ballot.IsAbsent
		fallthrough
	default:
		l.renewal.noteAnswer(m.Index)
		if renewed { // a server without the hold answers, and renews nothing
			l.e.endRenewalOutage(m.At(l.key.Lock()), now)
		}
	}
	l.ballot.Vote(m.Index).Renewed(l.token(), answer, now)
	if r := l.renewal.round; r != nil && renewed && sent.Mono < r.sent.Mono { // of an earlier round
		until, ok := l.ballot.Votes().TrustedUntil(l.token()) // settle moves the trust below
		if !ok {
			until = l.trust.until()
		}
		l.askToRenew(m, until)
	}
	l.settle(now)
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
func (l *Lease) settle(now clock.Instant) {
	if l.ballot.Votes().Standing(l.token()) < l.ballot.Votes().Quorum() {
		l.lose(l.loss(Taken, nil))
		if r := l.renewal.round; r != nil {
			r.end(l.done.err())
		}
		return
	}
	before := l.trust.until()
	// The deadline never moves back: a vote's trust only grows while its grant stands, and without a quorum of standing
	// grants the lease has just been lost.
	if until, ok := l.ballot.Votes().TrustedUntil(l.token()); ok {
		l.trust.set(until)
	}
	l.settleRound(before, now)
	l.setTimer()
}

// settleRound ends the round if a quorum has answered, or if none can any more. The round has succeeded once the
// deadline has reached the round's own trust, no matter which masters moved it.
func (l *Lease) settleRound(before, now clock.Instant) {
	r := l.renewal.round
	switch {
	case r == nil && l.trust.until().Mono > before.Mono: // a quorum has answered, but after the node timeout
		// An answer that was long on its way confirms a hand-off, but leaves little of the TTL.
		l.roundSucceeded(now, l.renewal.confirm && l.trust.left(now) < l.terms.TTL/2)
	case r == nil:
	case l.trust.until().Mono >= l.e.drift.Trusted(r.sent, l.terms.TTL).Mono: // a quorum has renewed it since
		l.roundSucceeded(now, false)
		r.end(nil)
	case !l.ballot.Votes().RenewalsUnderWay():
		l.roundStalled(now)
	}
}

// roundSucceeded schedules the next renewal after a quorum has confirmed one. confirm makes it an early one. Only at
// this moment is it certain that the hold stands on a quorum, so only now are the masters that lost the hold asked to
// restore it (case regain-unconfirmed of the model: an invalid hold was restored, with a smaller token than a hold that
// was granted since).
func (l *Lease) roundSucceeded(now clock.Instant, confirm bool) {
	l.logFailures() // logs a minority that failed
	l.renewal.confirm, l.renewal.handOff, l.renewal.round, l.renewal.failure = confirm, false, nil, nil
	l.e.counters.renewed.Add(1)
	if l.planRenewal(now); l.renewal.again {
		l.renewal.again, l.renewal.due = false, now.Mono
	}
	l.e.observers.offer(l.e.observers.hooks.Renewed, &l.hold)
	l.regain(now)
}

// regain asks masters that lost the hold to restore it, with its token, under mu. A quorum has just confirmed that the
// hold stands, and each master ensures that no other grant was counted (case regain-counted). Without regain, a quorum
// of three that loses one master after the other, each for a moment, loses the lease, although never more than one
// master was away at a time.
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
			details = h.details(h.e.route(h.key.Lock()), "")
		}
		regain := wire.Regain{Hold: h.id, TTL: h.terms.ttlArg, Token: h.token(), Details: details, Trusted: trusted}
		call := transport.Call{
			Script: h.e.scriptsOf(m).regain, Vote: m.Vote(h.e.tokens.proposal()), Args: regain.Args(nil),
		}
		h.post(m, call, wire.ReadRegain, func(_ wire.HoldReply, a ballot.Answer, _ error) {
			h.ballot.Vote(m.Index).Regained(h.token(), a)
		})
	}
}

// roundStalled ends a round that cannot find a quorum, or has found none within the node timeout. Masters that have not
// answered are not asked again, and their answers still count.
func (l *Lease) roundStalled(now clock.Instant) {
	r := l.renewal.round
	l.noteSilence(now)
	l.renewal.round = nil
	l.e.counters.renewFailed.Add(1)
	l.planRetry(now)
	if len(r.waiters) > 0 {
		r.end(l.unrenewed(r))
	}
	l.logFailures()
}

// unrenewed describes a round that has failed, under mu. A master that has granted the hold since the round began was
// not asked in the round, and did not confirm.
func (l *Lease) unrenewed(r *round) *Error {
	causes, _ := l.renewal.failure.(NodeFailures)
	asked := l.e.drift.Trusted(r.sent, l.terms.TTL)
	failed := &Error{Op: OpRenew, Name: l.name, Need: l.e.quorum(), Nodes: causes}
	failed.Kind, _ = l.e.refusal(causes)
	for i := range l.e.masters {
		vote := l.ballot.Vote(i)
		if _, found := causes.find(i); !found && vote.Counts() && vote.Until.Mono >= asked.Mono {
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
// of the lease does not end the wait either, because it now belongs to the new hold. The goroutines that wait for the
// round continue with the new hold.
func (l *Lease) abandonRound() {
	if l.renewal.round == nil {
		return
	}
	for _, waiter := range l.renewal.round.waiters {
		close(waiter)
	}
	l.renewal.round = nil
}

// whyExpired returns the reason that a lease was not renewed in time. A round under way is a failure too, caused by the
// silence of the masters that have not answered: a process that stood still during a round cannot distinguish that from
// servers that did.
func (l *Lease) whyExpired(now clock.Instant) (Reason, error) {
	if l.renewal.round != nil {
		l.noteSilence(now)
	}
	switch {
	case l.renewal.failure != nil:
		l.noteAbsence()
		return Unreachable, l.renewal.failure
	case l.renewal.due != clock.Never:
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
func (l *Lease) noteSilence(now clock.Instant) {
	silence := l.silence(now)
	for i, m := range l.e.masters {
		known, _ := l.renewal.failure.(NodeFailures)
		if _, found := known.find(i); !found && l.ballot.Votes().OwesRenewal(i) {
			l.renewal.noteFailure(NodeFailure{Index: i, Addr: m.At(l.key.Lock()).Addr(), Err: silence})
		}
	}
	if l.renewal.failure == nil {
		l.renewal.failure = silence
	}
}

// silence returns the failure of a master that has not answered the round. If this process was late meanwhile, it may
// not have read an answer that came in time, or has asked late.
func (l *Lease) silence(now clock.Instant) error {
	sent := l.renewal.round.sent.Mono
	silence := &NoReply{After: now.Mono - sent}
	if by := l.e.timers.Delayed(sent, now.Mono); by > silence.After/lateShare {
		return &ProcessLate{By: by, Silence: silence}
	}
	return silence
}

// noteAbsence records the masters that do not stand by the lease. They do not fail, but without them fewer failures are
// enough to lose the lease.
func (l *Lease) noteAbsence() {
	known, _ := l.renewal.failure.(NodeFailures)
	for i, m := range l.e.masters {
		vote := l.ballot.Vote(i)
		if _, found := known.find(i); found || vote.Counts() && vote.Token == l.token() {
			continue
		}
		err := vote.Err // why its last request failed
		if err == nil {
			err = errNotThere
		}
		l.renewal.noteFailure(NodeFailure{Index: i, Addr: m.At(l.key.Lock()).Addr(), Err: err})
	}
}

// errNotThere is the failure of a master that has answered, and has nothing to renew: it has lost the hold, or never
// had it.
var errNotThere = errors.New("does not have the hold")

// logFailures logs which servers did not renew the lease, under its mutex: one line for each server at growing
// intervals, independent of how many leases it has. The loss of a lease is reported for each lease.
func (l *Lease) logFailures() {
	causes, _ := l.renewal.failure.(NodeFailures)
	for _, cause := range causes {
		server := l.e.masters[cause.Index].At(l.key.Lock())
		pause, due := l.e.renewalOutages.due(server, l.e.clock.Now().Mono, 0)
		if !due {
			continue
		}
		l.e.observers.warn("server does not renew leases; retrying until their deadlines",
			slog.String("master", server.Addr()), slog.Int("leases", l.e.registry.countOn(server, l.e.clock.Now())),
			slog.String("lock", l.name), slog.Duration("next_report", pause), slog.Any("error", cause.Err))
	}
}

// countOn returns the number of trusted leases that have their locks on this server.
func (r *registry) countOn(server *transport.Node, now clock.Instant) (n int) {
	for _, l := range r.snapshot() {
		on := func(m *transport.Master) bool { return m.At(l.key.Lock()) == server }
		if !l.trust.until().Passed(now) && slices.ContainsFunc(l.e.masters, on) {
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
	l = l.lock()
	now := l.e.clock.Now()
	if l.expire(now); l.phase != held {
		defer l.mu.Unlock()
		return l.done.err()
	}
	if ctx.Err() != nil {
		defer l.mu.Unlock()
		return &Error{Op: OpRenew, Kind: Undecided, Name: l.name, Err: ctxerr.Cause(ctx)}
	}
	r := l.renewal.round
	if r == nil {
		r = l.startRound(now)
		l.setTimer() // for the end of the round, even if no renewal is scheduled
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
		return &Error{Op: OpRenew, Kind: Undecided, Name: l.name, Err: ctxerr.Cause(ctx)}
	case <-l.Done(): // while the round is under way
		return l.Err()
	}
}

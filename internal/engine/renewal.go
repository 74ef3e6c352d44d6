package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/joined"
	"github.com/seed74116694/fencelock/internal/transport"
)

// renewal is a lease's plan to be extended, and the round under way. It is guarded by the mutex of its lease, l in its
// methods.
type renewal struct {
	due     time.Duration // or never
	confirm bool          // a hand-off lasts for a short time only, until the first renewal
	handOff bool          // it is one that no renewal has confirmed yet
	again   bool          // once more at once, when a quorum has confirmed the round under way
	round   *round        // under way
	failure error         // NodeFailures since a quorum last renewed it, where masters are known for it
}

// round is one renewal on all masters. An answer counts for the vote of its master whichever round it was asked in; the
// round itself is only for those who wait for it and for the next one to be planned.
type round struct {
	sent    clock.Instant
	late    time.Duration // how long after it was due
	waiters []chan error  // of Renew
}

const (
	renewJitter = 0.05 // so that leases taken together are not renewed together for ever
	renewTicks  = 20   // in a renewal interval; what is due in one tick is renewed in one call
	retryShare  = 8    // a failed renewal is tried again after this part of the trust that is left
	retryMin    = 5 * time.Millisecond
)

// plan sets when the next renewal is due: at a third of the time left, so that two may fail. The jitter makes it
// earlier and never later: what is left is what may be lost.
func (n *renewal) plan(l *Lease, now clock.Instant) {
	n.due = clock.Never
	if n.renews(l) {
		// Due times are rounded down to ticks, so that renewals of leases of about the same age meet in one call.
		third := l.trust.left(now) / 3
		due := now.Mono + third - time.Duration(renewJitter*rand.Float64()*float64(third))
		tick := max(third/renewTicks, 1)
		n.due = max(due-due%tick, now.Mono+1)
	}
}

// planRetry sets when a failed renewal is tried again. The interval follows from the trust that is left, so however
// short a hand-off lasts, and however late the master comes back, there is another try in time.
func (n *renewal) planRetry(l *Lease, now clock.Instant) {
	n.due = clock.Never
	if n.renews(l) {
		n.due = now.Mono + max(l.trust.left(now)/retryShare, retryMin)
	}
}

// renews reports whether the lease is to be extended at all: always until a hand-off is confirmed, which lasts for a
// short time only, even where the caller wants no renewals.
func (n *renewal) renews(l *Lease) bool { return l.terms.Renew || n.confirm }

// next is when fire has something to do.
func (n *renewal) next(e *Engine) time.Duration {
	if n.round != nil {
		return n.round.sent.Mono + e.stallAfter()
	}
	return n.due
}

// fire starts the round that is due, or ends the one that has come to nothing. There is one round at a time. A second
// one beside it would ask the same masters the same, and the later answer says all that the earlier one does.
func (n *renewal) fire(l *Lease, now clock.Instant) {
	switch {
	case now.Mono < n.next(l.e):
	case n.round != nil:
		n.stalled(l, now)
	default:
		n.start(l, now).late = now.Mono - n.due
	}
}

// start posts a round to every master that has the hold and does not owe an answer.
func (n *renewal) start(l *Lease, now clock.Instant) *round {
	// The round begins before its first request leaves: its trust is counted from here.
	r := &round{sent: now}
	n.round = r
	for _, m := range l.e.masters {
		n.ask(l, m, l.trust.until())
	}
	return r
}

// ask posts a renewal to one master. After until it is of no use any more. A master that owes an answer is asked again
// when that answer has renewed the lease.
func (n *renewal) ask(l *Lease, m *transport.Master, until clock.Instant) {
	if !l.ballot.Vote(m.Index).Renewing(l.token()) {
		return
	}
	renewal := &transport.Renewal{
		Lock: l.key.lock(), Holds: l.key.holds(), Hold: l.id, TTL: l.terms.ttlArg, Token: uint64(l.token()),
		Deadline: until,
		Done:     func(renewed bool, err error, sent clock.Instant) { l.renewed(m, renewed, err, sent) },
	}
	if l.block() > 0 {
		renewal.Wanted = wantedBy(l)
	}
	m.Renew(renewal) // it only joins a queue, so it need not wait for mu to be given back
}

// renewed takes in one master's answer, to whatever round. What the answer is trusted until counts from the moment at
// which this very request left, which may be later than the round's: it may have waited in the pipeline.
func (l *Lease) renewed(m *transport.Master, renewed bool, err error, sent clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.e.clock.Now()
	// An answer that comes after the deadline is too late, whatever it says: others may be in.
	if l.expire(now); l.phase != held {
		return
	}
	answer := ballot.Answer{Status: ballot.IsGranted, Until: l.e.drift.Trusted(sent, l.terms.TTL)}
	switch {
	case err != nil:
		if transport.Unread(err) {
			l.e.membership.recheck()
		}
		answer = ballot.Answer{Status: ballot.NoAnswer, Err: err}
		l.renewal.noteFailure(NodeFailure{Index: m.Index, Addr: m.At(l.key.lock()).Addr(), Err: m.Explain(err)})
	case !renewed:
		answer.Status = ballot.IsAbsent
		fallthrough
	default:
		l.renewal.noteAnswer(m.Index)
		l.e.renews(m.At(l.key.lock()), now)
	}
	l.ballot.Vote(m.Index).Renewed(l.token(), answer, now)
	if r := l.renewal.round; r != nil && renewed && sent.Mono < r.sent.Mono { // of a round before
		until, ok := l.ballot.Votes().TrustedUntil(l.token()) // the trust is moved below
		if !ok {
			until = l.trust.until()
		}
		l.renewal.ask(l, m, until)
	}
	l.settle(now)
}

// settle acts on what the masters have said, under mu. The deadline is that of the quorum which is trusted longest.
//
// A quorum that says "gone" is not needed for a loss: once too many masters do not stand by the token, no quorum does,
// and another client's quorum may be among them. Without answers the lease stands until its deadline: silence is no
// loss, and nobody else is let in before.
func (l *Lease) settle(now clock.Instant) {
	if l.ballot.Votes().Standing(l.token()) < l.ballot.Votes().Quorum() {
		l.lose(lossOf(l, Taken, nil))
		if r := l.renewal.round; r != nil {
			r.end(l.ending.err())
		}
		return
	}
	before := l.trust.until()
	// Never earlier than before: a vote's trust only grows while its grant stands, and without a quorum of standing
	// grants the lease has just been lost.
	if until, ok := l.ballot.Votes().TrustedUntil(l.token()); ok {
		l.trust.set(until)
	}
	l.renewal.settle(l, before, now)
	l.setTimer()
}

// settle ends the round where a quorum has answered, or none can any more. A quorum of answers is seen by the deadline:
// it has moved as far as the round asked for, whichever masters it was that moved it.
func (n *renewal) settle(l *Lease, before, now clock.Instant) {
	r := n.round
	switch {
	case r == nil && l.trust.until().Mono > before.Mono: // a quorum has answered, if not within the node timeout
		// An answer that was long on its way confirms a hand-off, but leaves little of the TTL that it is to last for.
		n.succeeded(l, now, n.confirm && l.trust.left(now) < l.terms.TTL/2)
	case r == nil:
	case l.trust.until().Mono >= l.e.drift.Trusted(r.sent, l.terms.TTL).Mono: // a quorum has renewed it since
		n.succeeded(l, now, false)
		r.end(nil)
	case !l.ballot.Votes().RenewalsUnderWay():
		n.stalled(l, now)
	}
}

// succeeded plans the next renewal after a quorum has confirmed one. confirm says that it has to come soon. This is the
// one moment at which it is certain that the hold stands on a quorum, so it is the only one at which masters that lost
// it are asked to take it back (case regain-unconfirmed of the model: a hold that was not valid any more came back, and
// had a smaller token than one that was granted since).
func (n *renewal) succeeded(l *Lease, now clock.Instant, confirm bool) {
	n.tell(l) // a minority that failed
	n.confirm, n.handOff, n.round, n.failure = confirm, false, nil, nil
	l.e.counters.renewed.Add(1)
	if n.plan(l, now); n.again {
		n.again, n.due = false, now.Mono
	}
	l.e.observers.tell(l.e.observers.hooks.Renewed, &l.voting)
	l.regain(now)
}

// stallAfter is how long a round is waited for: the node timeout, and for slow links their round trip. It is how long
// until the next try, not how long the lease is trusted: that is the deadline, whatever any round does.
func (e *Engine) stallAfter() time.Duration { return e.cfg.NodeTimeout + e.tokens.longestRoundTrip() }

// stalled ends a round that has not come to a quorum, be it within the node timeout. Masters that owe an answer are not
// asked again; what they say still counts.
func (n *renewal) stalled(l *Lease, now clock.Instant) {
	r := n.round
	n.noteSilence(l, now)
	n.round = nil
	l.e.counters.renewFailed.Add(1)
	n.planRetry(l, now)
	if len(r.waiters) > 0 {
		r.end(n.unconfirmed(l, r))
	}
	n.tell(l)
}

// end tells those who wait for the round.
func (r *round) end(err error) {
	for _, waiter := range r.waiters {
		waiter <- err
	}
	r.waiters = nil
}

// abandon ends the round of a hold that a conversion has replaced. Its answers count for nothing any more, and the end
// of the lease does not come with it, since that is the new hold's now. Those who wait are sent on to the new hold.
func (n *renewal) abandon() {
	if n.round == nil {
		return
	}
	for _, waiter := range n.round.waiters {
		close(waiter)
	}
	n.round = nil
}

// whyExpired tells the reasons apart for which a lease was not renewed in time. A round under way is a failure too, and
// its cause the silence of the masters that owe an answer: a process that stood still during a round cannot tell that
// from servers that did.
func (n *renewal) whyExpired(l *Lease, now clock.Instant) (Reason, error) {
	if n.round != nil {
		n.noteSilence(l, now)
	}
	switch {
	case n.failure != nil:
		n.noteAbsence(l)
		return Unreachable, n.failure
	case n.due != clock.Never:
		return Paused, nil // a renewal was due long before and this process did not come to it
	default:
		return Expired, nil
	}
}

// Renew extends the lease now, or waits for the renewal that is under way. It returns nil when a quorum has confirmed,
// Err's value when the lease has ended, and *Unrenewed when the lease stands but that is not confirmed, or ctx has
// ended. Beside a conversion it is the new hold that is extended: its TTL may have begun long before this call.
func (l *Lease) Renew(ctx context.Context) error {
	l = l.lock()
	now := l.e.clock.Now()
	if l.expire(now); l.phase != held {
		defer l.mu.Unlock()
		return l.ending.err()
	}
	if ctx.Err() != nil {
		defer l.mu.Unlock()
		return &Unrenewed{Name: l.name, Err: joined.EndOf(ctx)}
	}
	r := l.renewal.round
	if r == nil {
		r = l.renewal.start(l, now)
		l.setTimer() // for the end of the round: no renewal may be planned
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
		return &Unrenewed{Name: l.name, Err: joined.EndOf(ctx)}
	case <-l.Done(): // while the round is under way
		return l.Err()
	}
}

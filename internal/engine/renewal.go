package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// renewal is a lease's plan to be extended.
type renewal struct {
	due     time.Duration // or never
	confirm bool          // a hand-off lasts for a short time only, until the first renewal
	round   *round        // under way
	failure error         // of the last round, until one succeeds
}

// round is one renewal on all masters.
type round struct {
	sent    clock.Instant
	err     error        // of the last master that failed
	waiters []chan error // of Renew
}

const (
	renewJitter = 0.05 // so that leases taken together are not renewed together for ever
	renewTicks  = 20   // in a renewal interval; what is due in one tick is renewed in one call
	retryShare  = 8    // a failed renewal is tried again after this part of the trust that is left
	retryMin    = 5 * time.Millisecond
)

// planRenewal sets when the next renewal is due: at a third of the time left, so that two may fail.
func (l *Lease) planRenewal(now clock.Instant) {
	l.renewal.due = clock.Never
	if l.terms.Renew || l.renewal.confirm {
		third := (l.deadline.Mono - now.Mono) / 3
		due := now.Mono + third - time.Duration(renewJitter*rand.Float64()*float64(third))
		tick := max(third/renewTicks, 1)
		l.renewal.due = max(due-due%tick, now.Mono+1)
	}
}

// planRetry sets when a failed renewal is tried again. The interval follows from the trust that is left, so however
// short a hand-off lasts, and however late the master comes back, there is another try in time.
func (l *Lease) planRetry(now clock.Instant) {
	l.renewal.due = clock.Never
	if l.terms.Renew || l.renewal.confirm {
		l.renewal.due = now.Mono + max((l.deadline.Mono-now.Mono)/retryShare, retryMin)
	}
}

// startRenewal posts a round to every master that has the hold and does not owe an answer, under mu.
func (l *Lease) startRenewal(now clock.Instant) *round {
	r := &round{sent: now}
	l.renewal.round = r
	for i, m := range l.e.masters {
		if !l.ballot.Renewing(i, l.token) {
			continue
		}
		renewal := &transport.Renewal{
			Lock: l.keys[0], Holds: l.keys[1], Hold: l.hold, TTL: l.terms.ttlArg, Token: l.tokenArg(), Deadline: l.deadline,
			Done: func(renewed bool, err error, sent clock.Instant) { l.renewed(m, renewed, err, sent) },
		}
		if l.cohort.block > 0 {
			renewal.Wanted = l.wantedElsewhere
		}
		l.afterUnlock(func() { m.Renew(renewal) })
	}
	return r
}

// renewed counts one master's answer, to whatever round, and acts on what the answers come to.
func (l *Lease) renewed(m *transport.Master, renewed bool, err error, sent clock.Instant) {
	l.mu.Lock()
	defer l.unlock()
	now := l.e.clock.Now()
	if l.expire(now); l.phase != held {
		return
	}
	r := l.renewal.round
	answer := ballot.Answer{Status: ballot.IsGranted, Until: l.e.drift.Trusted(sent, l.terms.TTL)}
	switch {
	case err != nil:
		answer = ballot.Answer{Status: ballot.NoAnswer, Err: err}
		if l.renewal.failure = (&NodeFailure{Index: m.Index, Addr: m.Addr(), Err: err}); r != nil {
			r.err = l.renewal.failure
		}
	case !renewed:
		answer.Status = ballot.IsAbsent
	}
	l.ballot.Renewed(m.Index, answer, now)
	l.settle(now)
}

// settle acts on what the masters have said, under mu. The deadline is that of the quorum which is trusted longest.
func (l *Lease) settle(now clock.Instant) {
	r := l.renewal.round
	if l.ballot.Standing(l.token) < l.ballot.Quorum() {
		loss := l.lose(Taken, nil)
		if r != nil {
			r.settle(loss)
		}
		return
	}
	late := false
	if until, ok := l.ballot.TrustedUntil(l.token); ok {
		late = r == nil && until.Mono > l.deadline.Mono
		l.trustUntil(until)
	}
	switch {
	case late: // a quorum has answered, if not within the node timeout
		// An answer that was long on its way confirms a hand-off, but leaves little of the TTL that it is to last for.
		l.renewal = renewal{confirm: l.renewal.confirm && l.deadline.Mono-now.Mono < l.terms.TTL/2}
		l.e.counters.renewed.Add(1)
		l.planRenewal(now)
		l.e.tell(l.e.cfg.Hooks.Renewed, l.event())
		l.regain(now)
	case r == nil:
	case l.deadline.Mono >= l.e.drift.Trusted(r.sent, l.terms.TTL).Mono: // a quorum has renewed it since
		l.renewal = renewal{}
		l.e.counters.renewed.Add(1)
		l.planRenewal(now)
		l.e.tell(l.e.cfg.Hooks.Renewed, l.event())
		l.regain(now)
		r.settle(nil)
	case !l.ballot.RenewalsUnderWay():
		l.stalled(now)
	}
	l.setTimer()
}

// stallAfter is how long a round is waited for: the node timeout, and for slow links their round trip.
func (e *Engine) stallAfter() time.Duration {
	return e.cfg.NodeTimeout + time.Duration(e.roundTrip.Load())
}

// stalled ends a round that has not come to a quorum, be it within the node timeout, under mu. Masters that owe an
// answer are not asked again; what they say still counts.
func (l *Lease) stalled(now clock.Instant) {
	r := l.renewal.round
	if r.err == nil {
		r.err = &transport.NoReply{After: now.Mono - r.sent.Mono}
	}
	l.renewalFailed(r, now)
}

func (l *Lease) renewalFailed(r *round, now clock.Instant) {
	l.e.counters.renewFailed.Add(1)
	l.renewal.round, l.renewal.failure = nil, r.err
	l.planRetry(now)
	r.settle(r.err)
	l.e.warn("renewal failed, trying again until the deadline",
		slog.String("lock", l.name), slog.Uint64("token", uint64(l.token)),
		slog.Duration("left", l.deadline.Mono-now.Mono), slog.Any("error", r.err))
}

// regain has masters that lost the hold take it back, with its token, under mu. A quorum has confirmed just now that the
// hold stands; the masters see to it that nothing else was counted.
func (l *Lease) regain(now clock.Instant) {
	for _, m := range l.e.masters {
		trusted, ok := l.ballot.Regaining(m.Index, l.token, now)
		if !ok {
			continue
		}
		unbroken := "0"
		if trusted {
			unbroken = "1"
		}
		args := []string{m.Vote(l.e.proposal()), l.hold, l.terms.ttlArg, l.tokenArg(), l.detail, unbroken}
		l.post(m, l.e.scripts.Load().regain, args, func(p reply, a ballot.Answer) {
			if p.err == nil && p.status != statusGranted {
				a.Status = ballot.IsAbsent
			}
			l.ballot.Regained(m.Index, l.token, a)
		})
	}
}

func (r *round) settle(err error) {
	for _, waiter := range r.waiters {
		waiter <- err
	}
	r.waiters = nil
}

// whyExpired tells the reasons apart for which a lease was not renewed in time.
func (n *renewal) whyExpired(now clock.Instant) (Reason, error) {
	switch {
	case n.failure != nil:
		return Unreachable, n.failure
	case n.round != nil:
		return Unreachable, &transport.NoReply{After: now.Mono - n.round.sent.Mono}
	case n.due != clock.Never:
		return Paused, nil // a renewal was due long before and this process did not come to it
	default:
		return Expired, nil
	}
}

// Renew extends the lease now, or waits for the renewal that is under way. It returns nil when a quorum has confirmed,
// Err's value when the lease has ended, the round's failure when the lease stands but was not extended.
func (l *Lease) Renew(ctx context.Context) error {
	l.mu.Lock()
	now := l.e.clock.Now()
	if l.expire(now); l.phase != held {
		defer l.unlock()
		return l.end
	}
	r := l.renewal.round
	if r == nil {
		r = l.startRenewal(now)
	}
	outcome := make(chan error, 1)
	r.waiters = append(r.waiters, outcome)
	l.unlock()
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-l.Done():
		return l.Err()
	}
}

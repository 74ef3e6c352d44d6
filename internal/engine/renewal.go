package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"
)

// renewal is a lease's plan to be extended.
type renewal struct {
	due     time.Duration // or never
	confirm bool          // a hand-off lasts for its claim only, until the first renewal
	round   *round        // under way
	failure error         // of the last round, until one succeeds
}

// round is one renewal on all masters. Each has its own counts, so that late answers to an earlier one change nothing.
type round struct {
	sent           instant
	ok, gone, lost int
	err            error
	waiters        []chan error // of Renew
}

const renewJitter = 0.1 // so that leases taken together are not renewed together for ever

// planRenewal sets when the next renewal is due: at a third of the time left, so that two may fail.
func (l *Lease) planRenewal(now instant, left time.Duration) {
	l.renewal.due = never
	if l.terms.Renew || l.renewal.confirm {
		third := float64(left) / 3
		l.renewal.due = now.mono + time.Duration(third*(1-renewJitter+2*renewJitter*rand.Float64()))
	}
}

// startRenewal posts a round to every master's lane, under mu.
func (l *Lease) startRenewal(now instant) *round {
	r := &round{sent: now}
	l.renewal.round = r
	args := l.e.args(now, l.hold, l.terms.ttlArg)
	for _, m := range l.e.masters {
		j := job{program: l.e.programs.renew, keys: l.e.sent(&l.keys), args: args}
		j.done = func(result rueidis.RedisResult, sent instant) { l.renewed(m, r, readAnswer(result), sent) }
		l.later = append(l.later, func() { m.lane.post(j) })
	}
	return r
}

// renewed counts one master's answer and, when the round is certain, acts on it.
func (l *Lease) renewed(m *master, r *round, a answer, sent instant) {
	m.sample(sent, a.elapsed)
	l.mu.Lock()
	defer l.unlock()
	switch {
	case a.err != nil:
		r.lost++
		r.err = &NodeFailure{Index: m.index, Addr: m.addr(), Err: a.err}
	case a.status == statusGranted:
		r.ok++
	case a.status == statusAbstains:
		r.lost++
		r.err = &NodeFailure{Index: m.index, Addr: m.addr(), Err: &Abstaining{For: a.left}}
	default:
		r.gone++
	}
	now := l.e.clock.now()
	if l.expire(now); l.phase != held || l.renewal.round != r {
		return
	}
	tolerated := len(l.slots) - l.e.quorum()
	switch {
	case r.ok >= l.e.quorum():
		l.renewal = renewal{}
		l.deadline = l.e.drift.trusted(r.sent, l.terms.TTL)
		l.e.counters.renewed.Add(1)
		l.planRenewal(now, l.deadline.mono-now.mono)
		r.settle(nil)
		if hook := l.e.cfg.Hooks.Renewed; hook != nil {
			l.later = append(l.later, func() { hook(l) })
		}
	case r.gone > tolerated:
		loss := l.lose(Taken, nil)
		r.settle(loss)
		return
	case r.ok+r.gone+r.lost == len(l.slots):
		l.renewalFailed(r, now)
	default:
		return
	}
	l.arm()
}

// retries is how many times a failing renewal is tried again within a TTL.
const retries = 20

func (l *Lease) renewalFailed(r *round, now instant) {
	l.e.counters.renewFailed.Add(1)
	l.renewal.round, l.renewal.failure = nil, r.err
	if l.renewal.due = never; l.terms.Renew || l.renewal.confirm {
		l.renewal.due = now.mono + max(l.terms.TTL/retries, rounding)
	}
	r.settle(r.err)
	left, err := l.deadline.mono-now.mono, r.err
	l.later = append(l.later, func() {
		l.e.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "renewal failed, trying again until the deadline",
			slog.String("lock", l.name), slog.Uint64("token", uint64(l.token)),
			slog.Duration("left", left), slog.Any("error", err))
	})
}

func (r *round) settle(err error) {
	for _, waiter := range r.waiters {
		waiter <- err
	}
	r.waiters = nil
}

// Renew extends the lease now, or waits for the renewal that is under way. It returns nil when a quorum has confirmed,
// Err's value when the lease has ended, the round's failure when the lease stands but was not extended.
func (l *Lease) Renew(ctx context.Context) error {
	l.mu.Lock()
	now := l.e.clock.now()
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

// expire ends the lease if its time is over, under mu, whatever any call is doing. The masters keep the hold a little
// longer, so nobody else is in yet.
func (l *Lease) expire(now instant) {
	if l.phase != held {
		return
	}
	switch {
	case now.mono >= l.capped:
		l.lose(MaxHold, nil)
	case !l.deadline.passed(now):
	case now.mono < l.deadline.mono:
		l.lose(Paused, nil) // only the wall clock got there
	case l.renewal.failure != nil:
		l.lose(Unreachable, l.renewal.failure)
	case l.renewal.round != nil:
		l.lose(Unreachable, &NoReply{After: now.mono - l.renewal.round.sent.mono})
	case l.renewal.due != never:
		l.lose(Paused, nil) // a renewal was due long before and this process did not come to it
	default:
		l.lose(Expired, nil)
	}
}

// lose ends the lease without its holder's wish, under mu.
func (l *Lease) lose(reason Reason, cause error) *Loss {
	loss := &Loss{Name: l.name, Token: l.token, Reason: reason, Err: cause}
	l.e.counters.lost.Add(1) // first: whoever sees the end sees it counted
	l.finish(loss)
	l.later = append(l.later, l.discard()) // a minority may have the hold still, even if a quorum does not
	l.later = append(l.later, func() {
		l.e.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "lease lost",
			slog.String("lock", l.name), slog.Uint64("token", uint64(l.token)),
			slog.String("reason", reason.String()), slog.Any("error", cause))
		if hook := l.e.cfg.Hooks.Lost; hook != nil {
			hook(l, loss)
		}
	})
	return loss
}

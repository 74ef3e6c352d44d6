package transport

import (
	"cmp"
	"errors"
	"slices"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Renewal is one hold to renew on one master.
type Renewal struct {
	wire.Renewal
	Deadline clock.Instant // from then on the renewal is useless
	Wanted   func()        // called before Done if another hold waits for the lock; may be nil

	// Done gets the answer. err is a *wire.Breaker if an operator broke the hold.
	Done func(renewed bool, err error, sent clock.Instant)
}

// renewalsPerCall bounds one script call to 100 to 200 us of the server's time.
const renewalsPerCall = 128

// renewalCalls makes script calls of several renewals each, of one TTL and kind. If a server refuses keys of several
// slots, as in a Cluster, each renewal is a separate call, because every lock has its own slot.
func (p *pipeline) renewalCalls(due []*Renewal) (calls []Call) {
	most := renewalsPerCall
	if p.n.separated.Load() {
		most = 1
	}
	compare := func(a, b *Renewal) int { return cmp.Or(cmp.Compare(a.TTL, b.TTL), cmp.Compare(a.Kind, b.Kind)) }
	slices.SortStableFunc(due, compare)
	for len(due) > 0 {
		n := min(most, len(due))
		if other := slices.IndexFunc(due[:n], func(r *Renewal) bool { return compare(r, due[0]) != 0 }); other > 0 {
			n = other
		}
		calls, due = append(calls, p.renewalCall(due[:n])), due[n:]
	}
	return calls
}

// renewalCall makes one script call of several renewals, with the marker if there are several masters.
func (p *pipeline) renewalCall(due []*Renewal) Call {
	renew := make(wire.Renew, len(due))
	for i, r := range due {
		renew[i] = &r.Renewal
	}
	m, marker := p.n.m, ""
	if m.cfg.Quarantine > 0 {
		marker = m.cfg.MarkerKey
	}
	call := Call{
		Script: m.cfg.Renew(m), Keys: renew.Keys(marker), Vote: m.Vote(0), Args: renew.Args(),
		To: RepeaterFunc(func(r rueidis.RedisResult, sent clock.Instant) { p.answered(due, r, sent) }),
	}
	if len(due) > 1 {
		call.split = func() []Call { return p.renewalCalls(due) }
	}
	return call
}

// answered passes each renewal its part of the reply.
func (p *pipeline) answered(due []*Renewal, r rueidis.RedisResult, sent clock.Instant) {
	reply, err := wire.ReadRenew(r, len(due))
	if err != nil {
		var short *Unreplicated
		if errors.As(err, &short) { // that a hold was broken needs no replica
			reply, _ = wire.ReadRenew(short.Reply, len(due))
		}
		for i, renewal := range due {
			if by := reply.Broken[i]; by != nil {
				renewal.Done(false, by, sent)
			} else {
				renewal.Done(false, err, sent)
			}
		}
		return
	}
	p.n.clock.sample(sent, reply.Micros)
	for i, renewal := range due {
		renewed := reply.Renewed[i]
		if reply.Stale {
			renewal.Done(false, errStaleMarker, sent)
			continue
		}
		if renewed == wire.RenewContended && renewal.Wanted != nil {
			renewal.Wanted()
		}
		if by := reply.Broken[i]; by != nil {
			renewal.Done(false, by, sent)
			continue
		}
		renewal.Done(renewed.OK(), nil, sent)
	}
}

package engine

import (
	"cmp"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// apply carries out what follows from an event, under mu. A request joins the queue of its master and leaves from
// there.
func (h *driver) apply(now hold.Now, effects []hold.Effect) {
	over, floor := false, int64(0)
	for i := range effects {
		switch f := &effects[i]; f.Kind {
		case hold.SendAcquire:
			h.acquisition.request(f)
		case hold.SendRaise, hold.SendYield, hold.SendRegain:
			h.send(f)
		case hold.SendRenew, hold.SendConfirm:
			h.renew(f)
		case hold.SendRelease:
			over = true
			if f.Way != hold.ByCaller {
				var heir *driver
				if f.Heir {
					heir = h
				}
				floor = cmp.Or(floor, h.e.tokens.ProposalAfter(h.life.Token())) // the same for all masters
				giveInBackground(h, f, heir, floor)
			}
		case hold.Wait:
			h.acquisition.enqueue(f)
		case hold.Wake:
			h.e.waiters[f.Master].wake(h.name)
		case hold.Restart:
			over = false
			h.acquisition.restart(f.Err.(hold.Failures))
		case hold.Start:
			h.start(now.Mono, f)
		case hold.Fail:
			over = true
			h.acquisition.fail(f)
		case hold.End:
			over = f.Way != hold.Later
			h.end(f.Loss)
		case hold.SetTimer:
			h.e.timers.Set(&h.timer, h, f.At)
		default:
			h.applyKeeping(f)
		}
	}
	if over {
		h.e.timers.Cancel(&h.timer)
		h.e.registry.forget(h.id) // once the releases are counted, so that Close sees either the hold or its releases
	}
}

// applyKeeping carries out what is reported of a hold that stands.
func (h *driver) applyKeeping(f *hold.Effect) {
	switch f.Kind {
	case hold.Kept:
		h.e.counters.renewed.Add(1) // before a caller of Renew goes on
		h.logFailures(f.Err)        // of a minority
		h.endRound(nil)
		h.e.observers.offer(OnRenewed, h, nil, 0)
	case hold.NotKept:
		h.e.counters.renewFailed.Add(1)
		if h.extra != nil && len(h.extra.renews) > 0 {
			h.endRound(h.unrenewed(f))
		}
		h.logFailures(f.Err)
	case hold.AtRisk:
		h.e.observers.offer(OnAtRisk, h, nil, f.At)
	case hold.Missing:
		h.e.observers.warn("a lease stands without a master that does not take it back",
			slog.String("master", h.e.masters[f.Master].At(h.key).Addr()), slog.String("lock", h.name),
			slog.Int("masters", f.N))
	default: // AskAgain is for the refresh
	}
}

// start begins the lease with a hold that is granted.
func (h *driver) start(now time.Duration, f *hold.Effect) {
	a := h.acquisition
	// The counters change before the caller learns of the grant, so that a reader that sees the lease sees it counted.
	if a.waiting {
		h.e.counters.contended.Add(1)
	}
	if f.Known {
		h.e.counters.handedOff.Add(1)
	}
	a.leave() // before the hooks are notified: they must find no waiter any more
	h.waited = uint32(min((now - h.begun).Milliseconds(), math.MaxUint32))
	if h.extra != nil {
		h.extra.shared.first = h.life.Votes().First(f.Token)
	}
	if len(h.e.masters) > 1 && h.block() == 0 {
		h.e.tokens.Observe(f.Token)
	}
	h.e.counters.held.Add(1)
	if h.unobserved = h.provisional; !h.provisional { // else it is reported once it is kept
		h.e.observers.acquired(h)
	}
}

// end ends a granted hold, and with the standing hold the lease. Trust has ended before, for readers without the mutex.
// The contexts end when the mutex is unlocked, and the counters change before: a reader that sees the end sees it
// counted.
func (h *driver) end(lost *hold.Loss) {
	o, end := &h.e.observers, lockerr.ErrReleased
	if lost != nil {
		loss := h.loss(lost)
		end = loss
		switch {
		case h.provisional:
		case loss.Reason == lockerr.Expired: // as planned
			h.e.counters.lost(loss.Reason)
			o.final(OnExpired, h, nil)
		default:
			o.lost(h, loss)
			o.final(OnLost, h, loss)
		}
	} else if h.extra != nil {
		o.final(OnReleased, h, nil)
	}
	h.e.counters.held.Add(-1)
	h.done().fire(end, &h.lease.mu)
}

// loss describes the end of the hold.
func (h *driver) loss(lost *hold.Loss) *lockerr.Loss {
	loss := &lockerr.Loss{
		Name: h.name, Token: lost.Token, Reason: lost.Reason, Limit: lost.Limit, HandOff: lost.HandOff,
		Err: h.failures(lost.Err),
	}
	if loss.Token == 0 {
		if loss.Token = h.life.Token(); h.extra != nil {
			loss.Token = h.extra.shared.inUse(loss.Token)
		}
	}
	return loss
}

// inUse returns the token under which goroutines work now. The block is 41 to 56, say, and the third writer has 43:
// then it is 43, and last is 56. While a conversion is under way its own block is unused, and it is last.
func (s *sharedHold) inUse(last fencing.Token) fencing.Token {
	if s.tokenInUse != nil {
		if token := s.tokenInUse(); s.first <= token && token < last {
			return token
		}
	}
	return last
}

// send posts a request about a grant. Its answer is the event of the same name.
func (h *driver) send(f *hold.Effect) {
	e, m := h.e, h.e.masters[f.Master]
	call := transport.Call{Vote: m.Vote(e.tokens.Proposal())} // the same for all masters, so that their answers agree
	switch f.Kind {
	case hold.SendRaise:
		call.Script, call.Args = e.scripts.of(m).raise, wire.Raise{Hold: h.id, Token: f.Token}.Args(nil)
		h.post(m, call, wire.ReadRaise, hold.Event{Kind: hold.Raised, Token: f.Token})
	case hold.SendYield:
		call.Script, call.Args = e.scripts.of(m).yield, wire.Yield{Hold: h.id, Token: f.Token, Leave: f.Leave}.Args(nil)
		h.post(m, call, wire.ReadYield, hold.Event{Kind: hold.Yielded, Token: f.Token})
	default:
		// It waits for a master until the next renewal, and has its grant until then: no message reports it.
		details := h.details(e.masters.route(h.key), "", wire.FormatMillis(min(f.TTL, time.Hour)))
		regain := wire.Regain{
			Hold: h.id, TTL: h.terms.keepArg(f.Keep), Token: f.Token, Details: details, Trusted: f.Known,
		}
		if own := h.life.Votes()[f.Master].Token; own > f.Token {
			regain.Own = own
		}
		call.Script, call.Args = e.scripts.of(m).regain, regain.Args(nil)
		h.post(m, call, wire.ReadRegain, hold.Event{Kind: hold.Regained, TTL: f.TTL, Sent: f.Until})
	}
}

// post sends a call for the hold, under mu. Its answer completes the event.
func (h *driver) post(m *transport.Master, call transport.Call, read holdReader, e hold.Event) {
	id := h.id
	e.Master = m.Index
	call.Keys, call.Urgent, call.Replicated = h.e.keys.ForCall(nil, h.key), true, true
	to := func(r rueidis.RedisResult, sent clock.Instant) {
		reply, err := readHold(r, read)
		e.Answer, e.First = voter{h, m}.answer(reply, err, sent), reply.First
		e.After, e.Err = reply.Left, err
		if h.current(id) {
			h.step(e)
			h.lease.mu.Unlock()
		}
	}
	// The answer to a repeated call does not cover what the first one has written.
	if call.To = transport.RepeaterFunc(to); h.e.confirmsHandOff {
		call.To = transport.ReceiverFunc(to)
	}
	m.Post(call)
}

// renew posts a renewal to one master: of the hold, or of a grant that counts only once the master has confirmed it.
func (h *driver) renew(f *hold.Effect) {
	m, id, kind, token, ttl := h.e.masters[f.Master], h.id, hold.Renewed, f.Token, f.TTL
	if f.Kind == hold.SendConfirm {
		kind = hold.Confirmed
	}
	renewal := &transport.Renewal{
		Renewal:  h.renewal(h.terms.keepArg(f.Keep), token),
		Deadline: f.Until,
		Done: func(renewed bool, err error, sent clock.Instant) {
			e := hold.Event{Kind: kind, Master: m.Index, Token: token, TTL: ttl, Sent: sent}
			h.renewed(id, m, e, renewed, err)
		},
	}
	if h.block() > 0 {
		renewal.Wanted = func() {
			if h.current(id) {
				h.setContended()
				h.lease.mu.Unlock()
			}
		}
	}
	if h.extra != nil {
		renewal = h.extra.mark.addTo(renewal, m.Index)
	}
	m.Renew(renewal)
}

// renewal returns a renewal of the hold.
func (h *driver) renewal(ttl wire.Millis, token fencing.Token) wire.Renewal {
	kind := wire.RenewWrite
	if h.mode == fencing.Read {
		kind = wire.RenewRead
	} else if h.block() > 0 {
		kind = wire.RenewShared
	}
	return wire.Renewal{Key: h.key, Hold: h.id, TTL: ttl, Kind: kind, Token: token}
}

// renewed reports one master's answer to a renewal. One without an answer may run later, and set an expiry back, of
// this hold or of the lease's next one.
func (h *driver) renewed(id string, m *transport.Master, e hold.Event, renewed bool, err error) {
	if err != nil && !transport.DidNotRun(err) {
		h.e.unansweredAt.Store(int64(h.e.clock.Now().Mono))
	}
	if !h.current(id) {
		return
	}
	defer h.lease.mu.Unlock()
	e.Answer.Status = ballot.IsAbsent
	if by, broken := err.(*wire.Breaker); broken {
		e.Kind, e.By, e.Keeps = hold.Broken, by, !by.Now
	} else if err != nil {
		failed := lockerr.OfMaster(m, h.key, m.Explain(err))
		e.Answer, e.Err = h.e.noAnswer(m, err), &failed
	}
	if renewed { // a server without the hold answers, and renews nothing
		e.Answer.Status = ballot.IsGranted
		server := m.At(h.key)
		if after, ended := h.e.renewalOutages.Over(server, h.e.clock.Now().Mono); ended {
			h.e.observers.info("a server renews leases again",
				slog.String("master", server.Addr()), slog.Duration("after", after))
		}
	}
	h.step(e)
}

// poll renews a shared hold, because the answer reports waiters, under mu.
func (h *driver) poll() {
	if h.block() > 0 {
		h.renewNow()
	}
}

// renewNow renews the hold, under mu. A round that is under way may have been answered before the reason for this one,
// so another follows it.
func (h *driver) renewNow() {
	if h.terms.Renew {
		h.step(hold.Event{Kind: hold.Poll})
	}
}

// unrenewed returns the error of Renew for a round that no quorum has confirmed.
func (h *driver) unrenewed(f *hold.Effect) *lockerr.Error {
	causes, _ := h.failures(f.Err).(lockerr.NodeFailures)
	failed := &lockerr.Error{Op: lockerr.OpRenew, Name: h.name, Need: h.e.masters.quorum(), Got: f.N, Nodes: causes}
	failed.Kind, _ = causes.Refusal(h.e.masters)
	for _, cause := range causes {
		_, short := lockerr.AsUnreplicated(cause.Err)
		failed.Unknown = failed.Unknown || !short && !transport.DidNotRun(cause.Err)
	}
	return failed
}

// failures names the masters that have failed: NodeFailures, or the one failure that is of no master in particular. An
// error of another kind is returned as it is.
func (h *driver) failures(err error) error {
	known, ok := err.(hold.Failures)
	if !ok {
		return err
	}
	var all lockerr.NodeFailures
	for i, m := range h.e.masters {
		switch err := known[i].(type) {
		case nil:
		case *lockerr.NodeFailure:
			all = append(all, *err)
		default:
			all = append(all, lockerr.OfMaster(m, h.key, err))
		}
	}
	if all == nil {
		return known[len(h.e.masters)]
	}
	return all
}

// logFailures logs which servers did not renew the lease, under its mutex. A server has one line a minute, with one
// lease or with ten thousand. Losses have a line for each lease.
func (h *driver) logFailures(err error) {
	causes, _ := h.failures(err).(lockerr.NodeFailures)
	for _, cause := range causes {
		server := h.e.masters[cause.Index].At(h.key)
		_, line := h.e.renewalOutages.Due(server, h.e.clock.Now().Mono, 0, &h.e.observers.log)
		if !line {
			continue
		}
		h.e.observers.warnOfServer("server does not renew leases; retrying until their deadlines", server, cause.Err,
			slog.Int("leases", h.e.registry.countOn(server, h.e.clock.Now())), slog.String("lock", h.name))
	}
}

// countOn returns the number of trusted leases that have their locks on this server.
func (r *registry) countOn(server *transport.Node, now clock.Instant) (n int) {
	for h := range r.each {
		on := func(m *transport.Master) bool { return m.At(h.key) == server }
		if !h.life.Until().Passed(now) && slices.ContainsFunc(h.e.masters, on) {
			n++
		}
	}
	return n
}

// awaitRound returns a channel for the result of the round under way, or of the next one, under mu.
func (h *driver) awaitRound() <-chan error {
	result := make(chan error, 1)
	h.need().renews = append(h.need().renews, result)
	return result
}

// endRound gives the result of a round to the goroutines that wait for it, under mu.
func (h *driver) endRound(err error) {
	if h.extra == nil {
		return
	}
	for _, waiter := range h.extra.renews {
		waiter <- err
	}
	h.extra.renews = nil
}

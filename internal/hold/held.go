package hold

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
)

func (h *Hold) whileHeld(now *Now, e *Event, do []Effect) []Effect {
	switch e.Kind {
	case Tick:
		return h.tick(now, do)
	case Renew:
		if !h.round {
			return h.startRound(now, do)
		}
	case Poll:
		return h.poll(now, do)
	case Renewed:
		return h.renewed(now, e, do)
	case Regained:
		return h.regained(now, e, do)
	case SetTTL:
		h.setTTL(now, e.TTL, e.Sent.Mono)
	case Claim, Disclaim:
		h.unclaimed = e.Kind == Disclaim
	case Exchange:
		h.exchange(now, e)
	case Replace:
		h.second = true
		return h.end(now, nil, ByCaller, do)
	case Release:
		return h.end(now, nil, e.Way, do)
	case Lose:
		return h.lose(now, e.Loss, do)
	default:
	}
	return do
}

// exchange has the lease stand on this hold as it stood on the former one: with its TTL and its limit.
func (h *Hold) exchange(now *Now, e *Event) {
	h.second = false
	if ttl := e.From.TTL(now); ttl != h.TTL(now) {
		h.setTTL(now, ttl, e.Sent.Mono) // it was set during the conversion
	}
	if from := e.From.extra; from != nil && from.limit != clock.Never {
		h.need().limit = from.limit
	}
}

// need returns what few holds need, for one that does.
func (h *Hold) need() *extra {
	if h.extra == nil {
		h.extra = &extra{limit: clock.Never}
	}
	return h.extra
}

const (
	jitter       = 0.05 // so that leases that begin together do not renew together forever
	ticks        = 20   // in a renewal interval; leases due in the same tick are renewed in one call
	retryShare   = 8    // a failed renewal is retried after this part of the remaining trust
	retryMin     = 5 * time.Millisecond
	neverRegains = 3 // the first answers without the hold are expected, where another hold has not yielded
)

// RetryAfter returns after how long a renewal that failed is tried again. The interval follows from the remaining
// trust, so another attempt is in time even if a hand-off is very short or the master comes back late.
func RetryAfter(left time.Duration) time.Duration { return max(left/retryShare, retryMin) }

// plan schedules the next round at a third of the remaining time, so that two may fail. The jitter makes it earlier and
// never later, so that it takes nothing from the time for retries. A hand-off is renewed until a quorum has confirmed
// it, even if the caller wants no renewals, because it lasts only for a short time.
func (h *Hold) plan(now *Now) {
	h.due, h.safe = clock.Never, false
	if now.Terms.Renew || h.confirm {
		// Due times are rounded down to ticks, so that renewals of leases of about the same age share a call.
		third := (time.Duration(h.mono.Load()) - now.Mono) / 3
		due := now.Mono + third - time.Duration(jitter*now.World.Jitter()*float64(third))
		h.due = max(due-due%max(third/ticks, 1), now.Mono+1)
		h.safe = now.World.Risks
	}
}

// next returns when Tick must come: when there is something to do, and at the end at the latest.
func (h *Hold) next(now *Now) time.Duration {
	at := h.due
	if h.phase == Lost {
		return at
	}
	if h.round {
		at = h.sent.Mono + now.World.Stall()
	}
	if h.safe {
		at = min(at, h.riskAt(now))
	}
	if h.extra != nil {
		at = min(at, h.extra.limit)
	}
	return min(at, time.Duration(h.mono.Load()))
}

// riskAt returns when the hold is at risk: a third of its time is left, and no renewal was confirmed since the first
// third. A limit that ends the lease before its trust is no risk.
func (h *Hold) riskAt(now *Now) time.Duration {
	until := h.Until().Mono
	if h.extra != nil && h.extra.limit <= until {
		return clock.Never
	}
	span := h.trustedFor(h.TTL(now), now)
	if h.handOff {
		span = now.Terms.HandOff
	}
	return until - span/3
}

// tick does what is due. There is one round at a time. A second concurrent round would send the same requests to the
// same masters, and the later answer implies the earlier one.
func (h *Hold) tick(now *Now, do []Effect) []Effect {
	if h.safe && now.Mono >= h.riskAt(now) {
		h.safe = false
		do = append(do, Effect{Kind: AtRisk, At: h.Until().Mono - now.Mono})
	}
	switch {
	case now.Mono < h.next(now):
		return do
	case h.round:
		return h.stalled(now, do)
	default:
		return h.startRound(now, do)
	}
}

// startRound begins a round with every master that has the hold and has no request in flight.
func (h *Hold) startRound(now *Now, do []Effect) []Effect {
	// The round begins before its first request leaves, because its trust counts from here.
	h.round, h.stands, h.sent = true, false, now.Instant
	for i := range h.ballot.Votes() {
		do = h.renew(now, i, h.Until(), do)
	}
	return do
}

// poll begins a round. A round that is under way may have been answered before the reason for this one, so another
// follows it.
func (h *Hold) poll(now *Now, do []Effect) []Effect {
	if h.round {
		h.again = true
		return do
	}
	return h.startRound(now, do)
}

// renew asks one master in the round under way. A master with a request in flight is asked again when that request has
// renewed the hold. A renewal that SetTTL has made shorter than the trust so far lowers the trust before it is sent.
// The master keeps the hold for the TTL from its arrival on, which is after the round began.
func (h *Hold) renew(now *Now, master int, until clock.Instant, do []Effect) []Effect {
	vote := h.ballot.Vote(master)
	if !vote.Renewing(h.Token()) {
		return do
	}
	ttl := h.TTL(now)
	if h.extra != nil && h.extra.changed != nil {
		// Less than the round's own trust, which only answers reach.
		vote.Shorten(now.World.Drift.Trusted(h.sent, ttl).Add(-1))
		if trusted, ok := h.ballot.Votes().TrustedUntil(h.Token()); ok {
			h.trust(trusted)
		}
	}
	return append(do, Effect{
		Kind: SendRenew, Master: master, Token: h.Token(), TTL: ttl, Keep: h.Keep(*now), Until: until,
	})
}

// renewed applies one master's answer, of any round. Trust in the answer counts from the moment this request left,
// which may be later than the start of the round, because the request may have waited in the pipeline.
func (h *Hold) renewed(now *Now, e *Event, do []Effect) []Effect {
	h.noteUnanswered(now, e)
	if e.Answer.Status == ballot.NoAnswer {
		h.note(e.Master, e.Err, true)
	} else {
		e.Answer.Until = now.World.Drift.Trusted(e.Sent, h.trustedFor(e.TTL, now))
		h.noteAnswer(e.Master)
	}
	h.ballot.Vote(e.Master).Renewed(h.Token(), e.Answer, now.Instant)
	if h.round && e.Answer.Status == ballot.IsGranted && e.Sent.Mono < h.sent.Mono { // of an earlier round
		until, ok := h.ballot.Votes().TrustedUntil(h.Token()) // settle moves the trust below
		if !ok {
			until = h.Until()
		}
		do = h.renew(now, e.Master, until, do)
	}
	late := !h.round && h.stands // the quorum that has confirmed the round does not need this answer
	if do = h.settle(now, do); late && e.Answer.Status == ballot.IsAbsent && h.phase == Held {
		do = h.regain(now, e.Master, do)
	}
	return do
}

// settle applies the masters' answers. The deadline is the latest time until which a quorum is trusted.
//
// A loss does not require a quorum that answers "gone". Once too many masters do not stand by the token, no quorum
// does, and these masters may form another client's quorum. Without answers the hold stands until its deadline: silence
// is not a loss, and no other hold is granted before the deadline.
func (h *Hold) settle(now *Now, do []Effect) []Effect {
	votes := h.ballot.Votes()
	if votes.Standing(h.Token()) < votes.Quorum() {
		return h.lose(now, &Loss{Reason: Taken}, do)
	}
	before := h.Until().Mono
	// The deadline moves back only by a shorter TTL of SetTTL: else a vote's trust only grows while its grant stands, and
	// without a quorum of standing grants the hold has just been lost.
	if until, ok := votes.TrustedUntil(h.Token()); ok {
		h.trust(until)
	}
	// The round has succeeded once the deadline has reached its own trust, no matter which masters moved it.
	until, ttl := h.Until().Mono, h.trustedFor(h.TTL(now), now)
	switch {
	case !h.round && until > before: // a quorum has answered, but after the node timeout
		// An answer that was long on its way confirms a hand-off, but leaves little of the TTL.
		return h.succeeded(now, h.confirm && until-now.Mono < ttl/2, do)
	case !h.round:
	case until >= now.World.Drift.Trusted(h.sent, ttl).Mono: // a quorum has renewed it since
		return h.succeeded(now, false, do)
	case !votes.MayRenew():
		return h.stalled(now, do)
	}
	return do
}

// succeeded schedules the next round after a quorum has confirmed one. confirm makes it an early one. Only from this
// moment on, until the next round begins, is it certain that the hold stands on a quorum. So only then are the masters
// that lost the hold asked to restore it, also a master that answers later (case regain-unconfirmed of the model: an
// invalid hold was restored, with a smaller token than a hold that was granted since).
func (h *Hold) succeeded(now *Now, confirm bool, do []Effect) []Effect {
	do = append(do, Effect{Kind: Kept, Err: h.Failures()})
	h.round, h.stands, h.confirm, h.handOff, h.failed = false, true, confirm, false, nil
	if h.plan(now); h.again {
		h.again, h.due = false, now.Mono
	}
	for i := range h.ballot.Votes() {
		do = h.regain(now, i, do)
	}
	return do
}

// regain asks a master that lost the hold, or granted it with another token, to restore it. A quorum has just confirmed
// that the hold stands, so no other grant that was counted there has had a quorum. Without regain, a quorum of three
// that loses one master after the other, each for a moment, loses the lease, although never more than one master was
// away at a time.
//
// A master that abstains restores the hold only if trust in its own grant was never broken. Then no other hold can have
// been granted there, no matter what it has forgotten.
func (h *Hold) regain(now *Now, master int, do []Effect) []Effect {
	known, ok := h.ballot.Vote(master).Regaining(h.Token(), now.Instant)
	if !ok {
		return do
	}
	return append(do, Effect{
		Kind: SendRegain, Master: master, Token: h.Token(), TTL: h.TTL(now), Keep: h.Keep(*now), Known: known,
		Until: now.Instant,
	})
}

// regained applies the answer of a master that was asked to take the hold back. Sent is when the request was made.
func (h *Hold) regained(now *Now, e *Event, do []Effect) []Effect {
	vote := h.ballot.Vote(e.Master)
	vote.Regained(h.Token(), e.Answer)
	vote.Shorten(now.World.Drift.Trusted(e.Sent, h.trustedFor(e.TTL, now))) // as a renewal
	if e.Answer.Status != ballot.IsGranted && e.Answer.Err == nil && h.unregained < neverRegains {
		if h.unregained++; h.unregained == neverRegains {
			do = append(do, Effect{Kind: Missing, Master: e.Master, N: h.ballot.Votes().Standing(h.Token())})
		}
	}
	return h.changed(now, e.Master, do)
}

// stalled ends a round that cannot find a quorum, or has found none in time. Masters that have not answered are not
// asked again, and their answers still count.
func (h *Hold) stalled(now *Now, do []Effect) []Effect {
	h.noteSilence(now)
	if h.due != clock.Never {
		h.due = now.Mono + RetryAfter(h.Until().Mono-now.Mono)
	}
	h.round = false
	return append(do, Effect{Kind: NotKept, N: h.renewals(now), Err: h.Failures()})
}

// renewals returns how many masters have renewed the hold in the round.
func (h *Hold) renewals(now *Now) (n int) {
	asked := now.World.Drift.Trusted(h.sent, h.trustedFor(h.TTL(now), now))
	for i := range h.ballot.Votes() {
		vote := h.ballot.Vote(i)
		if h.failure(i) == nil && vote.Counts() && vote.Token == h.Token() && vote.Until.Mono >= asked.Mono {
			n++
		}
	}
	return n
}

// IsLate reports whether less than half of its time is left, although the hold is to be renewed.
func (h *Hold) IsLate(now Now) bool {
	span := h.TTL(&now)
	if h.handOff {
		span = now.Terms.HandOff
	}
	return h.due != clock.Never && h.Until().Mono-now.Mono < span/2
}

// Failures are why masters failed, by master. Failures of renewals have one more, for the silence of a round that no
// master in particular owes an answer.
type Failures []error

func (f Failures) Error() string { return errors.Join(f...).Error() }

// failure returns why a master did not renew, or nil.
func (h *Hold) failure(master int) error {
	if h.failed == nil {
		return nil
	}
	return (*h.failed)[master]
}

// Failures returns why masters did not renew the hold since a quorum last did: Failures, or nil if all is well.
func (h *Hold) Failures() error {
	if h.failed == nil {
		return nil
	}
	return slices.Clone(*h.failed) // it may change
}

// note records why a master did not renew, as a cause of a round that stalls, and of a loss. The answer may arrive
// after its round is over; it is still the best reason known. What is known already stays, unless the reason is an
// answer.
func (h *Hold) note(master int, err error, answer bool) {
	if h.failed == nil {
		all := make(Failures, h.ballot.Votes().Masters()+1)
		h.failed = &all
	}
	if all := *h.failed; all[master] == nil || answer {
		all[master] = err
	}
}

// noteAnswer removes the failure of a master that renews again.
func (h *Hold) noteAnswer(master int) {
	if h.failure(master) == nil {
		return
	}
	all := *h.failed
	all[master] = nil
	if !slices.ContainsFunc(all, func(err error) bool { return err != nil }) {
		h.failed = nil
	}
}

// noteSilence records the masters that have not answered the round. An earlier failure says more than silence, so it
// stays.
func (h *Hold) noteSilence(now *Now) {
	for i := range h.ballot.Votes() {
		if h.ballot.Votes().OwesRenewal(i) && h.failure(i) == nil {
			h.note(i, now.World.Silence(h.sent.Mono, now.Mono), false)
		}
	}
	if h.failed == nil {
		h.note(h.ballot.Votes().Masters(), now.World.Silence(h.sent.Mono, now.Mono), false)
	}
}

// ErrNotThere is the failure of a master that has answered, and has nothing to renew: it has lost the hold, or never
// had it.
var ErrNotThere = errors.New("does not have the hold")

// expire ends the hold, whose time is over. The masters keep it a little longer, so no other client has the lock at
// this time. The cases are in the order of the reasons: a limit that was agreed on is no failure, even if something
// else has ended too.
func (h *Hold) expire(now *Now, do []Effect) []Effect {
	switch deadline := h.Until(); {
	case h.extra != nil && now.Mono >= h.extra.limit:
		return h.lose(now, &Loss{Reason: MaxHold}, do)
	case now.Mono < deadline.Mono: // only the wall clock has reached it
		return h.lose(now, &Loss{Reason: Paused}, do)
	default:
		return h.lose(now, h.whyExpired(now), do)
	}
}

// whyExpired returns why the hold was not renewed in time. A round under way is a failure too, caused by the silence of
// the masters that have not answered: a process that stood still during a round cannot distinguish that from servers
// that did.
func (h *Hold) whyExpired(now *Now) *Loss {
	if h.round {
		h.noteSilence(now)
	}
	switch {
	case h.failed != nil:
		// Masters that do not stand by the hold do not fail, but without them fewer failures are enough to lose it.
		for i := range h.ballot.Votes() {
			if vote := h.ballot.Vote(i); !vote.Counts() || vote.Token != h.Token() {
				h.note(i, cmp.Or(vote.Err, ErrNotThere), false) // why its last request failed
			}
		}
		return &Loss{Reason: Unreachable, Err: h.Failures()}
	case h.due != clock.Never:
		return &Loss{Reason: Paused} // a renewal was due long before and this process did not start it
	default:
		return &Loss{Reason: Expired}
	}
}

// lose ends the hold without its holder's wish. What a minority of the masters may still have is released: it is of no
// use, and other clients would wait for its expiry.
func (h *Hold) lose(now *Now, loss *Loss, do []Effect) []Effect {
	switch {
	case loss.Reason == Taken:
		if h.extra != nil {
			h.extra.first = 0 // it leaves no minimum behind: no quorum has it any more
		}
	case loss.Limit > 0:
	case loss.Reason == MaxHold:
		loss.Limit = now.Terms.MaxHold
	case h.handOff:
		loss.Limit, loss.HandOff = now.Terms.HandOff, true
	default:
		loss.Limit = h.TTL(now)
	}
	return h.end(now, loss, Together, do)
}

// end is the only way out of Held. Trust ends first.
func (h *Hold) end(now *Now, loss *Loss, way Way, do []Effect) []Effect {
	if h.phase = Ended; way == Later {
		h.phase, h.due = Lost, h.Ends()
	}
	h.trust(clock.Instant{})
	if do = append(do, Effect{Kind: End, Way: way, Loss: loss}); way == ByHeir || way == Later {
		return do
	}
	return h.sendReleases(now, way, loss == nil && !h.second, do)
}

// whileLost gives back a hold that was broken, once its holder has released the lease or its deadline is reached.
func (h *Hold) whileLost(now *Now, e *Event, do []Effect) []Effect {
	if e.Kind != Release && now.Mono < h.due {
		return do
	}
	h.phase = Ended
	return h.sendReleases(now, AtOnce, false, do)
}

// sendReleases releases what the masters may have of the hold. Renewals end with it, so nothing moves the expiry since.
//
// Without a tombstone, a request that arrives after the release would be granted, and the lock would be held without a
// holder for a TTL (cases no-tombstone and overtake of the model). A request without an answer may be the one that was
// granted. An earlier request that failed may still be on its way too, over a connection that was replaced since. It
// can do no harm beyond the TTL of its grant, or once its connection is closed.
//
// released: the lease that stands on the hold has been released. A vote learns of no grant after that. So the client
// has known a grant with a larger token while it trusted in the lease, and the master may set its counter back.
func (h *Hold) sendReleases(now *Now, way Way, released bool, do []Effect) []Effect {
	kept, until := now.Terms.TTL, time.Duration(0)
	if h.extra != nil {
		kept = max(h.keptFor(now), h.minimumLeft(now))
		if now.Terms.MinHold > 0 && h.extra.first > 0 && !h.unclaimed && !h.second {
			until = now.Mono + h.minimumLeft(now)
		}
	}
	votes := h.ballot.Votes()
	for i := range votes {
		vote := &votes[i]
		if !vote.MayBeHeld() {
			continue
		}
		f := Effect{Kind: SendRelease, Master: i, Way: way, Keep: kept, At: until}
		f.Unsent = vote.State == ballot.Asked && !vote.Unknown // else an earlier request has left
		if vote.Unanswered() {
			f.TTL, f.Strays = min(max(kept, now.Terms.MinHold), Lateness), vote.MayArriveLate()
		}
		if released && len(votes) > 1 && h.counterAhead(now, i) != nil {
			f.Token, f.Outrun = h.Token(), vote.Token
		}
		do = append(do, f)
	}
	return do
}

// A lease with a minimum leaves its hold behind: the masters keep it as ended until the minimum has passed since the
// first grant. That is so however the lease ends, by its caller, by Close, or by a loss. So that it is also so if the
// process dies, an acquire and each renewal ask for the minimum where it is longer than the TTL. A hold that no caller
// had, such as one of several locks of which another is not granted, or that of an adoption that fails, and a hold that
// a conversion replaces, leave nothing behind.

// minimumLeft returns for how long from now the minimum of the lease lasts at most: all of it before the first grant.
// It counts from when this process learnt of that grant, which is later than the grant, and with a clock that may run
// faster than the masters' clocks. So it is no shorter than what a master counts from its own grant.
func (h *Hold) minimumLeft(now *Now) time.Duration {
	least := now.Terms.MinHold
	if least == 0 || h.extra.first == 0 {
		return least
	}
	elapsed := now.Mono - h.extra.first
	return max(least-elapsed+time.Duration(float64(elapsed)*float64(now.World.Drift))+clock.Rounding, 0)
}

// Keep returns for how long a master is to keep the hold from now on: for the TTL, or for the minimum if that is
// longer. The trust in the hold is that of the TTL.
func (h *Hold) Keep(now Now) time.Duration { return max(h.TTL(&now), h.minimumLeft(&now)) }

// change is what SetTTL has changed. A renewal with an earlier, shorter one may arrive after a renewal with this
// one, and set the expiry back.
type change struct {
	ttl      time.Duration
	until    time.Duration // from then on, by the monotonic clock, no renewal from before the change arrives
	shortest time.Duration // of those that may arrive; math.MaxInt64 if all are answered
	longest  time.Duration // that a master was ever asked for
}

// TTL returns for how long a renewal extends the hold: the TTL of its terms, or that of SetTTL.
func (h *Hold) TTL(now *Now) time.Duration {
	if h.extra == nil || h.extra.changed == nil {
		return now.Terms.TTL
	}
	return h.extra.changed.ttl
}

// keptFor returns for how long a master may keep the hold after the last request.
func (h *Hold) keptFor(now *Now) time.Duration {
	if h.extra == nil || h.extra.changed == nil {
		return now.Terms.TTL
	}
	return h.extra.changed.longest
}

// Lateness bounds how long a request may be on its way to a master after its client has given up on it. By then the
// client's connection is closed.
const Lateness = time.Minute

// outlived is for how long after a change of the TTL a renewal from before it may arrive: it may wait for an answer for
// some seconds before its client gives up on it.
const outlived = Lateness + 5*time.Second

// trustedFor returns for how long from its sending a renewal is trusted that has just been answered: for its TTL, or
// for a shorter one of a renewal that may still arrive.
func (h *Hold) trustedFor(ttl time.Duration, now *Now) time.Duration {
	if h.extra == nil || h.extra.changed == nil || now.Mono >= h.extra.changed.until {
		return ttl
	}
	return min(ttl, h.extra.changed.shortest)
}

// noteUnanswered records that a renewal may arrive later if it failed without an answer. Every answer to the script
// renew is passed here: the other scripts move no expiry of a grant that has the hold's token. A renewal with the TTL
// of now, or with a longer one, sets no expiry back.
func (h *Hold) noteUnanswered(now *Now, e *Event) {
	if e.Answer.Unknown && e.TTL < h.TTL(now) {
		t := h.extra.changed
		t.shortest, t.until = min(t.shortest, e.TTL), max(t.until, now.Mono+Lateness)
	}
}

// setTTL sets the TTL of all renewals from now on. Trust in the hold falls with the first of them. A renewal of this
// hold may still arrive only if one of this process had no answer lately.
func (h *Hold) setTTL(now *Now, ttl, unanswered time.Duration) {
	r := h.need()
	t := &change{ttl: ttl, until: now.Mono + outlived, shortest: math.MaxInt64, longest: max(ttl, h.keptFor(now))}
	if before := r.changed; before != nil && now.Mono < before.until {
		t.shortest = before.shortest
	}
	if unanswered > 0 && now.Mono < unanswered+outlived {
		t.shortest = min(t.shortest, h.TTL(now))
	}
	r.changed = t
}

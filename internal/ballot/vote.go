package ballot

import (
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// State is the known state of the hold on one master. It may be out of date in one direction only: a grant may have
// ended unnoticed, but no grant comes into being that its client has not asked for.
type State uint8

const (
	Unasked  State = iota // nothing has been sent, or the master does not know the hold: ask
	Asked                 // sent or about to be, without an answer so far
	Queued                // the hold waits there
	Granted               // the hold is granted there
	Refused               // answered: neither granted nor queued
	Failed                // not answered, or the master cannot serve
	Outvoted              // granted with a token that the quorum has passed, or no longer standing
	Left                  // it answers, and the hold has left it until a quorum of masters answers
)

// Vote is one master's part in a ballot. Every lease keeps one Vote for each master, so the small fields are grouped.
type Vote struct {
	Token   fencing.Token // of the grant
	First   fencing.Token // the first token of the grant's block. It stays where Token is raised
	Until   clock.Instant // the end of trust in the grant
	Err     error         // why the vote failed, or why the last request to the master did
	block   block         // of the last grant that was a token block
	yielded fencing.Token // the largest token that was offered: a grant up to it does not count

	State          State
	inflight       Op   // the operation on the grant that has no answer so far
	restored       bool // the grant has the token of the lease since a regain
	yieldRequested bool // a hold that comes first waits behind this one
	news           bool // the master has answered, or has become late, since Ballot.Next
	Permanent      bool // asking again cannot help
	Conflict       bool // a key of the lock holds a foreign value
	Short          bool // the hold stands there, and too few replicas have it
	HandedOff      bool // granted from the queue: it lasts for the hand-off TTL until renewed
	Unknown        bool // a request that can bring the hold about has no answer and may still run
	Slow           bool // asked, and not answered within the node timeout: the verdict does not wait for it
	Reading        bool // a join for writing was refused: its owner only reads
	Rival          bool // an upgrade was refused: another reader is upgrading
	Notified       bool // a message of a grant came that does not count, before the answer that the hold is queued
}

// Counts reports whether the grant stands as far as is known. A grant that was offered may be gone.
func (v *Vote) Counts() bool { return v.State == Granted && v.Token > v.yielded }

// isLater reports whether a grant is later than everything known of this master, whose tokens grow. So messages and
// answers need no order, and an old one does not restore a grant that was yielded or outvoted. A master that has
// restored the hold may have granted it with a larger token before.
func (v *Vote) isLater(token fencing.Token) bool {
	return !v.restored && token > v.Token && token > v.yielded
}

// MayBeHeld reports whether the master may have state of this hold.
func (v *Vote) MayBeHeld() bool {
	switch v.State {
	case Queued, Granted, Outvoted:
		return true
	default:
		return v.Unanswered()
	}
}

// Pending reports whether the verdict may still wait for this master's first answer.
func (v *Vote) Pending() bool { return v.State == Unasked || v.State == Asked && !v.Slow }

// Unanswered reports whether a request that can bring the hold about may still run, so that a release must leave a
// tombstone. A raise, a yield and a renewal do not bring back a hold that is gone.
func (v *Vote) Unanswered() bool {
	return v.Unknown || v.State == Asked || v.inflight == Regain
}

// MayArriveLate reports whether such a request may still run although the master already has the hold. The tombstone is
// then needed even where the release finds the hold.
func (v *Vote) MayArriveLate() bool { return v.Unknown || v.inflight == Regain }

// answered reports whether the master's last result is an answer about the hold, not a failure.
func (v *Vote) answered() bool {
	switch v.State {
	case Queued, Granted, Refused, Outvoted, Left:
		return v.Err == nil
	default:
		return false
	}
}

// Status is the state of the hold in a master's reply.
type Status uint8

const (
	IsQueued  Status = iota // the hold waits
	IsGranted               // the hold is granted, with a token
	IsRefused               // neither queued nor granted
	IsAbsent                // the master does not know the hold
	IsReading               // a join for writing was refused: the owner only reads
	IsRival                 // an upgrade was refused: another reader is upgrading already
	NoAnswer                // no reply came, or the reply says nothing of the hold
)

// Answer is one master's reply, or the lack of one.
type Answer struct {
	Status    Status
	Token     fencing.Token
	Until     clock.Instant // the end of trust in the grant
	Err       error         // of NoAnswer
	Permanent bool          // asking again cannot help
	Conflict  bool          // a key of the lock holds a foreign value
	Unknown   bool          // the request may have run, or may still run
	Short     bool          // the request has run, and too few replicas have its writes
}

// Ask records that an acquire or a join is being sent to the master. A vote in a later state keeps it: the request only
// asks what became of the hold, and must not make a grant uncertain.
func (v *Vote) Ask() {
	if v.State == Unasked || v.State == Failed || v.State == Left {
		v.State, v.Slow = Asked, false
	}
}

// Unsent records that the request to the master never left.
func (v *Vote) Unsent() {
	if v.State == Asked {
		v.State = Unasked
	}
}

// Late records that the master did not answer within the node timeout. A later answer still counts.
func (v *Vote) Late(err error) {
	if v.State == Asked {
		v.Slow, v.Err = true, err
		v.news = true
	}
}

// Answered applies the reply to an acquire or a join. If a message of the grant has overtaken the reply, the reply
// dates from before the grant, and the vote keeps its state.
func (v *Vote) Answered(a Answer) {
	v.news = true
	v.Unknown = v.Unknown || a.Unknown
	awaited := v.State == Asked
	switch {
	case a.Status == IsGranted && v.inflight == Confirm:
		// The request has found what is being confirmed, and has written nothing. If the grant counted now, it could not
		// be renewed before the confirmation is answered.
		if awaited {
			v.State, v.Err = Queued, nil
		}
	case a.Status == IsGranted && (awaited || v.isLater(a.Token)):
		// It may be the hand-off to an earlier request whose answer was lost.
		v.grant(a.Token, a.Until, v.Unknown)
	case !awaited:
	case a.Status == NoAnswer:
		v.fail(a)
	case a.Status == IsQueued:
		v.State, v.Err = Queued, nil
	default:
		v.State, v.Err, v.Reading, v.Rival = Refused, nil, a.Status == IsReading, a.Status == IsRival
	}
}

// Granted applies a grant that a message or a refresh reported.
func (v *Vote) Granted(token fencing.Token, until clock.Instant) {
	if v.isLater(token) {
		v.grant(token, until, true)
	}
}

// grant may bring back a token that was offered before, as the answer to a request sent after the offer. Such a grant
// stands but does not count. It is offered again.
func (v *Vote) grant(token fencing.Token, until clock.Instant, handedOff bool) {
	v.State, v.Token, v.Until, v.HandedOff, v.Err = Granted, token, until, handedOff, nil
	if v.First = token; v.block.token == token {
		v.First = v.block.first
	}
}

// Block records that the grant with this token is a token block that begins with first. It may be called before or
// after the grant is counted. 0 for first carries no information: the grant is then taken to have this token only.
func (v *Vote) Block(token, first fencing.Token) {
	if first == 0 || first >= token {
		return
	}
	v.block = block{token, first}
	if v.State == Granted && v.Token == token {
		v.First = first
	}
}

// block is the token range that a master reported for a grant.
type block struct{ token, first fencing.Token }

// fail records why the master has no part in the hold, as far as is known.
func (v *Vote) fail(a Answer) {
	v.State, v.Err, v.Permanent, v.Conflict, v.Short = Failed, a.Err, a.Permanent, a.Conflict, a.Short
}

// failKept records a failure after which the master keeps its state of the hold. The vote is lost, but the release must
// still go to this master, with a tombstone.
func (v *Vote) failKept(a Answer) {
	v.fail(a)
	v.Unknown = true
}

// Refreshed applies what a refresh reports of a queued waiter, still queued or unknown to the master, or the failure of
// the refresh. It reports whether the master has to be asked again.
func (v *Vote) Refreshed(a Answer) (askAgain bool) {
	if v.State != Queued {
		return false
	}
	v.Err = nil
	switch {
	case a.Status == IsAbsent:
		v.State = Unasked
		return true
	case a.Status != NoAnswer:
	case a.Permanent:
		v.failKept(a)
	default:
		v.Err = a.Err // the waiter keeps its place if a later refresh succeeds in time
	}
	return false
}

// Op is an operation that is sent to a master after it has granted the hold.
type Op uint8

// The operations of an Action, and of a vote with a request in flight.
const (
	None    Op = iota
	Raise      // raise the grant to the target
	Yield      // give the grant to an older hold that waits behind it
	Leave      // give the grant back, to any hold that waits
	Ask        // ask a master that the hold has left
	Renew      // move the expiry of the grant
	Regain     // restore a hold that this master has lost and a quorum has
	Confirm    // have the master, or its replicas, confirm a grant before it counts
)

// Raised applies the reply to a raise to the target. Any answer but the target makes the vote Outvoted: the master has
// counted past the target, or the hold is gone there. The master is not asked again with a larger target, because the
// token is decided once (case decide-twice: a token computed again from late answers may be behind a token that was
// reported in between).
func (v *Vote) Raised(target fencing.Token, a Answer) {
	if v.inflight != Raise {
		return
	}
	v.inflight = None
	switch {
	case v.Token >= target: // a later grant, for which the raise came too early
	case a.Status == IsGranted && a.Token == target:
		v.Token, v.Until = a.Token, a.Until
	case a.Status == NoAnswer && a.Unknown:
		v.failKept(a)
	default:
		v.State, v.Err = Outvoted, a.Err // the grant stands with a token that does not count
	}
}

// Renewing records that a renewal of the hold with this token is being sent, and reports whether to send it. It is not
// sent where the hold does not stand, as far as is known, or where a request is in flight.
func (v *Vote) Renewing(token fencing.Token) bool {
	if !v.Counts() || v.Token != token || v.inflight != None {
		return false
	}
	v.inflight = Renew
	return true
}

// Renewed applies the answer to a renewal: trusted until a new time, gone (IsAbsent), or no answer. It counts only
// while trust in that master's grant is unbroken: a master that was rolled back may have restored a grant that had
// ended, and other holds may have been granted in between (case renew-lapsed).
func (v *Vote) Renewed(token fencing.Token, a Answer, now clock.Instant) {
	if v.inflight != Renew {
		return
	}
	v.inflight, v.Err = None, a.Err
	switch {
	case v.Token != token: // a later grant has arrived since the renewal was sent
	case a.Status == NoAnswer: // the existing trust continues until its own end
	case a.Status == IsGranted && !v.Until.Passed(now):
		v.Until = a.Until
	default:
		v.State = Outvoted
	}
}

// Shorten ends the trust in the grant at this time at the latest, because the master may be asked to keep the hold no
// longer.
func (v *Vote) Shorten(until clock.Instant) {
	v.Until.Mono, v.Until.Wall = min(v.Until.Mono, until.Mono), min(v.Until.Wall, until.Wall)
}

// Confirming records that the master is asked to confirm a grant that another request has brought about, before it
// counts. It reports whether to ask. It is false where a request is in flight, because its answer may report more, and
// where a later grant is known.
func (v *Vote) Confirming(token fencing.Token) bool {
	if v.inflight != None || !v.isLater(token) {
		return false
	}
	v.inflight = Confirm
	return true
}

// Confirmed applies the answer: the grant stands, with its replicas if there are any, or is gone, or too few replicas
// have it. Without an answer, the next refresh reports the grant again.
func (v *Vote) Confirmed(token fencing.Token, a Answer) {
	if v.inflight != Confirm {
		return
	}
	v.inflight = None
	switch {
	case a.Status == IsGranted:
		v.Granted(token, a.Until)
	case a.Permanent:
		v.failKept(a)
	case a.Status == NoAnswer:
		v.Err = a.Err
	}
}

// Regaining records that the master is asked to restore a hold that a quorum has. trusted reports whether trust in its
// earlier grant is unbroken. ok is false where nothing is to be sent: a grant stands there with this token or a smaller
// one, a request is in flight, or the token was offered there once: a late offer would take the grant away (case
// regain-offered).
func (v *Vote) Regaining(token fencing.Token, now clock.Instant) (trusted, ok bool) {
	stands := v.State == Granted && v.Token <= token && !v.Until.Passed(now)
	if v.inflight != None || v.State == Asked || stands || token <= v.yielded {
		return false, false
	}
	v.inflight = Regain
	return v.Token == token && !v.Until.Passed(now), true
}

// Regained applies the reply to a regain. Where the hold waits, and after a failure, the next renewal that a quorum
// confirms asks again. A regain without an answer may still run, so it sets Unknown as an acquire does: the release
// leaves a tombstone for it (case no-tombstone).
func (v *Vote) Regained(token fencing.Token, a Answer) {
	if v.inflight != Regain {
		return
	}
	v.inflight, v.Err = None, a.Err
	v.Unknown = v.Unknown || a.Unknown
	switch {
	case a.Status == IsGranted && a.Token == token:
		v.State, v.Token, v.Until, v.restored = Granted, token, a.Until, true
	case a.Status == IsQueued:
		v.State = Queued // to be released
	}
}

// Yielded applies the reply to the yield of the grant with this token, or to its Leave.
func (v *Vote) Yielded(token fencing.Token, a Answer) {
	if !v.yields() {
		return
	}
	gone := Unasked
	if v.inflight == Leave {
		gone = Left
	}
	v.inflight = None
	switch {
	case a.Status == IsGranted:
		v.Granted(a.Token, a.Until) // a grant from the queue: kept for another claim, or returned at once
	case v.Token != token: // a later grant has arrived since the yield was sent
	case a.Status == IsQueued:
		v.State, v.Err = Queued, nil
	case a.Status == NoAnswer && a.Permanent:
		v.failKept(a)
	case a.Status == NoAnswer:
		v.Err = a.Err // the next Remind yields again: only the answer to a yield shows the state
	default:
		v.State, v.Err = gone, nil
	}
}

// yields reports whether a request that takes the grant away is in flight.
func (v *Vote) yields() bool { return v.inflight == Yield || v.inflight == Leave }

// YieldRequested records that an older hold waits behind this one on the master. The message may arrive before the
// answer that brings the grant, so the request is kept until there is a grant to yield.
func (v *Vote) YieldRequested() { v.yieldRequested = true }

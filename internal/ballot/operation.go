package ballot

import (
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Op is what can be asked of a master after it has granted the hold.
type Op uint8

// The operations of an Action, and of a vote that waits for an answer.
const (
	None    Op = iota
	Raise      // bring the grant up to the target
	Yield      // give the grant to an older hold that waits behind it
	Renew      // move the expiry of the grant
	Regain     // take a hold back that this master has lost and a quorum has
	Confirm    // have the replicas confirm a grant before it counts
)

// Raised takes in the reply to a raise to the target. Whatever is not the target outvotes the master: it has counted
// past the target, or the hold is gone there. It is not asked again with a larger target, since the token is decided
// once (case decide-twice: a token that is formed anew from late answers may be behind one that was reported in
// between).
func (v *Vote) Raised(target fencing.Token, a Answer) {
	if v.inflight != Raise {
		return
	}
	v.inflight = None
	switch {
	case v.Token >= target: // a later grant, which the raise was too early for
	case a.Status == IsGranted && a.Token == target:
		v.Token, v.Until = a.Token, a.Until
	case a.Status == NoAnswer && a.Unknown:
		v.failKept(a)
	default:
		v.State, v.Err = Outvoted, a.Err // the grant stands with a token that does not count
	}
}

// Renewing notes that the master is asked to renew the hold with this token. It is not where the hold does not stand,
// as far as is known, or where a request is under way.
func (v *Vote) Renewing(token fencing.Token) bool {
	if !v.Counts() || v.Token != token || v.inflight != None {
		return false
	}
	v.inflight = Renew
	return true
}

// Renewed takes in the answer to a renewal: trusted until then, gone (IsAbsent), or none. It counts only while trust in
// that master's grant is unbroken: a master that was rolled back may have brought back a grant that had ended, and
// others may have been let in between (case renew-lapsed).
func (v *Vote) Renewed(token fencing.Token, a Answer, now clock.Instant) {
	if v.inflight != Renew {
		return
	}
	v.inflight, v.Err = None, a.Err
	switch {
	case v.Token != token: // a later grant has come meanwhile
	case a.Status == NoAnswer: // the trust that there was goes on, and ends by itself
	case a.Status == IsGranted && !v.Until.Passed(now):
		v.Until = a.Until
	default:
		v.State = Outvoted
	}
}

// Confirming notes that a grant which others have brought about is to be confirmed by its replicas before it counts. It
// is not to be where a request is under way, whose answer may tell more, or where a later grant is known.
func (v *Vote) Confirming(token fencing.Token) bool {
	if v.inflight != None || !v.isLater(token) {
		return false
	}
	v.inflight = Confirm
	return true
}

// Confirmed takes in the answer: the grant stands with its replicas, or is gone, or too few of them have it. Without an
// answer the next refresh tells of the grant again.
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

// Regaining notes that the master is asked to take back a hold that a quorum has. It returns whether trust in its
// earlier grant is unbroken, and false for ok where nothing is to be sent: a grant stands there with whatever token, a
// request is under way, or the token was offered back there once and can never count again.
func (v *Vote) Regaining(token fencing.Token, now clock.Instant) (trusted, ok bool) {
	stands := v.State == Granted && !v.Until.Passed(now)
	if v.inflight != None || v.State == Asked || stands || token <= v.yielded {
		return false, false
	}
	v.inflight = Regain
	return v.Token == token && !v.Until.Passed(now), true
}

// Regained takes in the reply to a regain. Where it failed the vote stays what it was, gone or failed, and the next
// renewal that a quorum confirms asks again. A regain without an answer may still run, so it is unknown like an
// acquire: the release leaves a tombstone for it (case no-tombstone).
func (v *Vote) Regained(token fencing.Token, a Answer) {
	if v.inflight != Regain {
		return
	}
	v.inflight, v.Err = None, a.Err
	v.Unknown = v.Unknown || a.Unknown
	if a.Status == IsGranted && a.Token == token {
		v.State, v.Token, v.Until = Granted, token, a.Until
	}
}

// Yielded takes in the reply to the yield of the grant with this token.
func (v *Vote) Yielded(token fencing.Token, a Answer) {
	if v.inflight != Yield {
		return
	}
	v.inflight = None
	switch {
	case a.Status == IsGranted:
		v.Granted(a.Token, a.Until) // the queue's: kept for another claim, or come back at once
	case v.Token != token: // a later grant has come meanwhile
	case a.Status == IsQueued:
		v.State, v.Err = Queued, nil
	case a.Status == NoAnswer && a.Permanent:
		v.failKept(a)
	case a.Status == NoAnswer:
		v.Err = a.Err // the next Remind yields again: only its own answer tells where it stands
	default:
		v.State, v.Err = Unasked, nil
	}
}

// YieldRequested notes that an older hold waits behind this one on the master. The message may come before the answer
// that brings the grant, so it is kept until there is a grant to yield.
func (v *Vote) YieldRequested() { v.yieldRequested = true }

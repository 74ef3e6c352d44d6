package ballot

import (
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Op is an operation that is sent to a master after it has granted the hold.
type Op uint8

// The operations of an Action, and of a vote with a request in flight.
const (
	None    Op = iota
	Raise      // raise the grant to the target
	Yield      // give the grant to an older hold that waits behind it
	Renew      // move the expiry of the grant
	Regain     // restore a hold that this master has lost and a quorum has
	Confirm    // have the replicas confirm a grant before it counts
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

// Confirming records that the replicas are asked to confirm a grant that another request has brought about, before it
// counts. It reports whether to ask. It is false where a request is in flight, because its answer may report more, and
// where a later grant is known.
func (v *Vote) Confirming(token fencing.Token) bool {
	if v.inflight != None || !v.isLater(token) {
		return false
	}
	v.inflight = Confirm
	return true
}

// Confirmed applies the answer: the grant stands with its replicas, or is gone, or too few replicas have it. Without an
// answer, the next refresh reports the grant again.
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
// earlier grant is unbroken. ok is false where nothing is to be sent: a grant stands there with any token, a request is
// in flight, or the token was offered there once and can never count again.
func (v *Vote) Regaining(token fencing.Token, now clock.Instant) (trusted, ok bool) {
	stands := v.State == Granted && !v.Until.Passed(now)
	if v.inflight != None || v.State == Asked || stands || token <= v.yielded {
		return false, false
	}
	v.inflight = Regain
	return v.Token == token && !v.Until.Passed(now), true
}

// Regained applies the reply to a regain. After a failure the vote keeps its state, and the next renewal that a quorum
// confirms asks again. A regain without an answer may still run, so it sets Unknown as an acquire does: the release
// leaves a tombstone for it (case no-tombstone).
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

// Yielded applies the reply to the yield of the grant with this token.
func (v *Vote) Yielded(token fencing.Token, a Answer) {
	if v.inflight != Yield {
		return
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
		v.State, v.Err = Unasked, nil
	}
}

// YieldRequested records that an older hold waits behind this one on the master. The message may arrive before the
// answer that brings the grant, so the request is kept until there is a grant to yield.
func (v *Vote) YieldRequested() { v.yieldRequested = true }

package ballot

import (
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Status is what a master's reply says of the hold.
type Status uint8

// The statuses of an Answer.
const (
	IsQueued  Status = iota // it waits
	IsGranted               // it is granted, with a token
	IsRefused               // neither
	IsAbsent                // this master does not know it
	IsReading               // a join for writing, and the owner only reads
	NoAnswer                // no reply came, or one that says nothing of the hold
)

// Answer is one master's reply, or the lack of one.
type Answer struct {
	Status    Status
	Token     fencing.Token
	Until     clock.Instant // trust in the grant
	Err       error         // of NoAnswer
	Permanent bool          // asking again cannot help
	Conflict  bool          // a key of the lock holds something else
	Unknown   bool          // the request may have run, or may run yet
}

// Ask notes that an acquire or a join is being sent to master i.
func (b *Ballot) Ask(i int) {
	if v := &b.votes[i]; v.State == Unasked || v.State == Failed {
		v.State, v.Slow = Asked, false
	}
}

// Late notes that master i has not answered within the node timeout. Its answer still counts when it comes.
func (b *Ballot) Late(i int, err error) {
	if v := &b.votes[i]; v.State == Asked {
		v.Slow, v.Err = true, err
		b.news = true
	}
}

// Answered takes in the reply to an acquire or a join. A message of the grant may have overtaken it: then it is from
// before the grant, and the vote stays as it is.
func (b *Ballot) Answered(i int, a Answer) {
	v := &b.votes[i]
	b.news = true
	v.Unknown = v.Unknown || a.Unknown
	awaited := v.State == Asked
	switch {
	case a.Status == IsGranted && (awaited || v.isLater(a.Token)):
		// It may be the hand-off to a request before this one whose answer was lost.
		v.grant(a.Token, a.Until, v.Unknown)
	case !awaited:
	case a.Status == NoAnswer:
		v.fail(a)
	case a.Status == IsQueued:
		v.State, v.Err = Queued, nil
	default:
		v.State, v.Err, v.Reading = Refused, nil, a.Status == IsReading
	}
}

// Granted takes in a grant that a message or a refresh told of.
func (b *Ballot) Granted(i int, token fencing.Token, until clock.Instant) {
	if v := &b.votes[i]; v.isLater(token) {
		v.grant(token, until, true)
	}
}

// grant may bring a token that was offered back, as the answer to a request that was sent since. It stands, but does
// not count: it is offered back again.
func (v *Vote) grant(token fencing.Token, until clock.Instant, handedOff bool) {
	v.State, v.Token, v.Until, v.HandedOff, v.Err = Granted, token, until, handedOff, nil
	v.First = token
}

// Block notes that the grant with this token on master i is a block that begins with first. 0 says nothing: then the
// token is all that the grant is known to have.
func (b *Ballot) Block(i int, token, first fencing.Token) {
	if v := &b.votes[i]; first > 0 && first < token && v.State == Granted && v.Token == token {
		v.First = first
	}
}

func (v *Vote) fail(a Answer) {
	v.State, v.Err, v.Permanent, v.Conflict = Failed, a.Err, a.Permanent, a.Conflict
}

// failKept is a failure that leaves the master with what it has of the hold.
func (v *Vote) failKept(a Answer) {
	v.fail(a)
	v.Unknown = true
}

// Refreshed takes in what a refresh says of a waiter that is still queued or unknown there, or why it failed. It
// reports whether the master has to be asked anew.
func (b *Ballot) Refreshed(i int, a Answer) (askAgain bool) {
	v := &b.votes[i]
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
		v.Err = a.Err // it keeps its place if a later refresh comes in time
	}
	return false
}

// Raised takes in the reply to a raise to the target.
func (b *Ballot) Raised(i int, target fencing.Token, a Answer) {
	v := &b.votes[i]
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

// Renewing notes that master i is asked to renew the hold with this token. It is not where the hold does not stand, as
// far as is known, or where a request is under way.
func (b *Ballot) Renewing(i int, token fencing.Token) bool {
	v := &b.votes[i]
	if !v.Counts() || v.Token != token || v.inflight != None {
		return false
	}
	v.inflight = Renew
	return true
}

// RenewalsUnderWay reports whether any master has yet to answer.
func (b *Ballot) RenewalsUnderWay() bool {
	return b.count(func(v *Vote) bool { return v.inflight == Renew }) > 0
}

// Renewed takes in the answer to a renewal: trusted until then, gone (IsAbsent), or none. It counts only while trust in
// that master's grant is unbroken: a master that was rolled back may have brought back a grant that had ended.
func (b *Ballot) Renewed(i int, a Answer, now clock.Instant) {
	v := &b.votes[i]
	if v.inflight != Renew {
		return
	}
	v.inflight, v.Err = None, a.Err
	switch {
	case v.Token != b.target: // a later grant has come meanwhile
	case a.Status == NoAnswer:
	case a.Status == IsGranted && !v.Until.Passed(now):
		v.Until = a.Until
	default:
		v.State = Outvoted
	}
}

// Standing returns how many masters have granted this token, as far as is known.
func (b *Ballot) Standing(token fencing.Token) int {
	return b.count(func(v *Vote) bool { return v.Counts() && v.Token == token })
}

// Regaining notes that master i is asked to take back a hold that a quorum has. It returns whether trust in its earlier
// grant is unbroken, and false for ok where nothing is to be sent: a grant stands there with whatever token, a request
// is under way, or the token was offered back there once and can never count again.
func (b *Ballot) Regaining(i int, token fencing.Token, now clock.Instant) (trusted, ok bool) {
	v := &b.votes[i]
	stands := v.State == Granted && !v.Until.Passed(now)
	if v.inflight != None || v.State == Asked || stands || token <= v.yielded {
		return false, false
	}
	v.inflight = Regain
	return v.Token == token && !v.Until.Passed(now), true
}

// Regained takes in the reply to a regain.
func (b *Ballot) Regained(i int, token fencing.Token, a Answer) {
	v := &b.votes[i]
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
func (b *Ballot) Yielded(i int, token fencing.Token, a Answer) {
	v := &b.votes[i]
	if v.inflight != Yield {
		return
	}
	v.inflight = None
	switch {
	case a.Status == IsGranted:
		b.Granted(i, a.Token, a.Until) // the queue's: kept for another claim, or come back at once
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

// YieldRequested notes that an older hold waits behind this one on master i. The message may come before the answer
// that brings the grant, so it is kept until there is a grant to yield.
func (b *Ballot) YieldRequested(i int) { b.votes[i].yieldRequested = true }

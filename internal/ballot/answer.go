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

// Answered takes in the reply to an acquire or a join.
func (b *Ballot) Answered(i int, a Answer) {
	v := &b.votes[i]
	b.news = true
	if a.Status == IsGranted {
		b.grant(v, a.Token, a.Until, false)
		return
	}
	if v.State != Asked && v.State != Unasked {
		return // a message of the grant has overtaken this answer, which is from before it
	}
	v.Slow, v.Err = false, nil
	switch a.Status {
	case NoAnswer:
		b.fail(v, a)
	case IsQueued:
		v.State = Queued
	case IsAbsent, IsReading, IsRefused:
		v.State, v.Reading = Refused, a.Status == IsReading
	}
}

// Granted takes in a grant that a message or a refresh told of.
func (b *Ballot) Granted(i int, token fencing.Token, until clock.Instant) {
	b.grant(&b.votes[i], token, until, true)
}

// grant is where every grant comes through. One whose token was offered back is old news, except as the answer to a
// request that was sent since: then it stands, and is offered back again.
func (b *Ballot) grant(v *Vote, token fencing.Token, until clock.Instant, handedOff bool) {
	switch {
	case v.State == Granted && v.Token == token:
		return
	case token <= v.yielded && v.State != Asked:
		return
	}
	v.State, v.Token, v.Until, v.HandedOff = Granted, token, until, handedOff
	v.Slow, v.Err = false, nil
	v.inflight = None // what was asked of an earlier grant does not concern this one
}

func (b *Ballot) fail(v *Vote, a Answer) {
	v.State, v.Err, v.Permanent, v.Conflict = Failed, a.Err, a.Permanent, a.Conflict
	v.Unknown = v.Unknown || a.Unknown
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
		b.fail(v, a)
	default:
		v.Err = a.Err // it keeps its place if a later refresh comes in time
	}
	return false
}

// Raised takes in the reply to a raise to the target.
func (b *Ballot) Raised(i int, target fencing.Token, a Answer) {
	v := &b.votes[i]
	if v.inflight != Raise || v.inflightToken != target {
		return
	}
	v.inflight = None
	switch {
	case a.Status == IsGranted && a.Token == target:
		v.Token, v.Until = a.Token, a.Until
	case a.Status == NoAnswer && a.Unknown:
		v.State, v.Err, v.Unknown = Failed, a.Err, true
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
	v.inflight, v.inflightToken = Renew, token
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
	case a.Status == NoAnswer:
	case a.Status == IsGranted && (len(b.votes) == 1 || !v.Until.Passed(now)):
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
// grant is unbroken, and false for ok where nothing is to be sent: the hold stands there, or a request is under way.
func (b *Ballot) Regaining(i int, token fencing.Token, now clock.Instant) (trusted, ok bool) {
	v := &b.votes[i]
	if v.inflight != None || v.State == Asked || v.State == Granted && v.Token < token {
		return false, false
	}
	if v.Counts() && v.Token == token && !v.Until.Passed(now) {
		return false, false
	}
	trusted = v.State == Outvoted && v.Token == token && v.Token > v.yielded && !v.Until.Passed(now)
	v.inflight, v.inflightToken = Regain, token
	return trusted, true
}

// Regained takes in the reply to a regain.
func (b *Ballot) Regained(i int, token fencing.Token, a Answer) {
	v := &b.votes[i]
	if v.inflight != Regain {
		return
	}
	v.inflight, v.Err = None, a.Err
	v.Unknown = v.Unknown || a.Unknown
	if a.Status == IsGranted && a.Token == token && token > v.yielded {
		v.State, v.Token, v.Until = Granted, token, a.Until
	}
}

// Yielded takes in the reply to the yield of the grant with this token. One to an earlier yield changes nothing.
func (b *Ballot) Yielded(i int, token fencing.Token, a Answer) {
	v := &b.votes[i]
	if v.inflight != Yield || v.inflightToken != token {
		return
	}
	v.inflight, v.Err = None, a.Err
	switch {
	case a.Status == IsGranted:
		b.grant(v, a.Token, a.Until, v.HandedOff)
	case a.Status == IsQueued:
		v.State = Queued
	case a.Status == NoAnswer && a.Permanent:
		b.fail(v, a)
		v.Unknown = true // the grant stands
	case a.Status == NoAnswer:
		v.Unknown = v.Unknown || a.Unknown // the next Remind yields again: only its own answer tells where it stands
	default:
		v.State = Unasked
	}
}

// YieldRequested notes that an older hold waits behind this one on master i. The message may come before the answer
// that brings the grant, so it is kept until there is a grant to yield.
func (b *Ballot) YieldRequested(i int) { b.votes[i].yieldRequested = true }

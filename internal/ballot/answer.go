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
	IsRival                 // an upgrade, and another reader is upgrading already
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
	Short     bool          // it has run, and too few replicas have it
}

// Ask notes that an acquire or a join is being sent to the master. A vote that knows more already keeps it: the request
// goes out to learn what became of the hold, and must not make a grant uncertain.
func (v *Vote) Ask() {
	if v.State == Unasked || v.State == Failed {
		v.State, v.Slow = Asked, false
	}
}

// Late notes that the master has not answered within the node timeout. Its answer still counts when it comes.
func (v *Vote) Late(err error) {
	if v.State == Asked {
		v.Slow, v.Err = true, err
		v.news = true
	}
}

// Answered takes in the reply to an acquire or a join. A message of the grant may have overtaken it: then it is from
// before the grant, and the vote stays as it is.
func (v *Vote) Answered(a Answer) {
	v.news = true
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
		v.State, v.Err, v.Reading, v.Rival = Refused, nil, a.Status == IsReading, a.Status == IsRival
	}
}

// Granted takes in a grant that a message or a refresh told of.
func (v *Vote) Granted(token fencing.Token, until clock.Instant) {
	if v.isLater(token) {
		v.grant(token, until, true)
	}
}

// grant may bring a token that was offered back, as the answer to a request that was sent since. It stands, but does
// not count: it is offered back again.
func (v *Vote) grant(token fencing.Token, until clock.Instant, handedOff bool) {
	v.State, v.Token, v.Until, v.HandedOff, v.Err = Granted, token, until, handedOff, nil
	if v.First = token; v.block.token == token {
		v.First = v.block.first
	}
}

// Block notes that the grant with this token is a block that begins with first, before or after it is counted. 0 says
// nothing: then the token is all that the grant is known to have.
func (v *Vote) Block(token, first fencing.Token) {
	if first == 0 || first >= token {
		return
	}
	v.block = block{token, first}
	if v.State == Granted && v.Token == token {
		v.First = first
	}
}

// block is what a master has said of a grant: its tokens.
type block struct{ token, first fencing.Token }

// fail notes that the master has no part in the hold, as far as is known, and why.
func (v *Vote) fail(a Answer) {
	v.State, v.Err, v.Permanent, v.Conflict, v.Short = Failed, a.Err, a.Permanent, a.Conflict, a.Short
}

// failKept is a failure that leaves the master with what it has of the hold. So the release has to go there, with a
// tombstone, though the vote is lost.
func (v *Vote) failKept(a Answer) {
	v.fail(a)
	v.Unknown = true
}

// Refreshed takes in what a refresh says of a waiter that is still queued or unknown there, or why it failed. It
// reports whether the master has to be asked anew.
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
		v.Err = a.Err // it keeps its place if a later refresh comes in time
	}
	return false
}

package ballot

import (
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Status is the state of the hold in a master's reply.
type Status uint8

// The statuses of an Answer.
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
	if v.State == Unasked || v.State == Failed {
		v.State, v.Slow = Asked, false
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

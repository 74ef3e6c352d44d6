package ballot

import (
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// State is the known state of the hold on one master. It may be out of date in one direction only: a grant may have
// ended unnoticed, but no grant comes into being that its client has not asked for.
type State uint8

// The states of a vote.
const (
	Unasked  State = iota // nothing has been sent, or the master does not know the hold: ask
	Asked                 // sent, without an answer so far
	Queued                // the hold waits there
	Granted               // the hold is granted there
	Refused               // answered: neither granted nor queued
	Failed                // not answered, or the master cannot serve
	Outvoted              // granted with a token that the quorum has passed, or no longer standing
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
}

// Counts reports whether the grant stands as far as is known. A grant that was offered may be gone.
func (v *Vote) Counts() bool { return v.State == Granted && v.Token > v.yielded }

// isLater reports whether a grant is later than everything known of this master, whose tokens grow. So messages and
// answers need no order, and an old one does not restore a grant that was yielded or outvoted.
func (v *Vote) isLater(token fencing.Token) bool { return token > v.Token && token > v.yielded }

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
func (v *Vote) Unanswered() bool { return v.Unknown || v.State == Asked || v.inflight == Regain }

// MayArriveLate reports whether such a request may still run although the master already has the hold. The tombstone is
// then needed even where the release finds the hold.
func (v *Vote) MayArriveLate() bool { return v.Unknown || v.inflight == Regain }

// answered reports whether the master's last result is an answer about the hold, not a failure.
func (v *Vote) answered() bool {
	switch v.State {
	case Queued, Granted, Refused, Outvoted:
		return v.Err == nil
	default:
		return false
	}
}

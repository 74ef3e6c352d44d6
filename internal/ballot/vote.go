package ballot

import (
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// State is what is known of the hold on one master. It may be out of date, but only towards less: a grant may have
// ended unnoticed, and none comes about that its client has not asked for.
type State uint8

// The states of a vote.
const (
	Unasked  State = iota // nothing has been sent, or the master does not know the hold: ask
	Asked                 // sent, and not answered yet
	Queued                // it waits there
	Granted               // it is granted there
	Refused               // answered: neither granted nor queued
	Failed                // not answered, or the master cannot serve
	Outvoted              // granted, but with a token that the quorum has gone past, or not standing any more
)

// Vote is one master's part in a ballot. Every lease keeps one for each master, so the small fields are together.
type Vote struct {
	Token   fencing.Token // of the grant
	First   fencing.Token // of the grant's tokens; it stays where Token is raised
	Until   clock.Instant // trust in the grant
	Err     error         // why it failed, or why the last request to it did
	block   block         // of the last grant that was one
	yielded fencing.Token // the largest token that was offered back: a grant up to it does not count

	State          State
	inflight       Op   // asked of the grant, and not answered yet
	yieldRequested bool // a hold that comes first waits behind this one
	news           bool // it has answered, or is not waited for any more, since Ballot.Next
	Permanent      bool // asking again cannot help
	Conflict       bool // a key of the lock holds something else
	Short          bool // the hold stands there, and too few replicas have it
	HandedOff      bool // granted from the queue, for the claim only
	Unknown        bool // a request that can bring the hold about has no answer and may still run
	Slow           bool // asked, and not answered within the node timeout: the verdict does not wait for it
	Reading        bool // a join for writing was refused, since its owner only reads
	Rival          bool // an upgrade was refused, since another reader is upgrading
}

// Counts reports whether the grant stands as far as is known. One that was offered back may be gone.
func (v *Vote) Counts() bool { return v.State == Granted && v.Token > v.yielded }

// isLater reports whether a grant is later than all that is known of this master: its tokens grow. So messages and
// answers need no order, and what has ended (yielded, outvoted) does not come back by an old one.
func (v *Vote) isLater(token fencing.Token) bool { return token > v.Token && token > v.yielded }

// Live reports whether the master may have something of this hold.
func (v *Vote) Live() bool {
	switch v.State {
	case Queued, Granted, Outvoted:
		return true
	default:
		return v.Unanswered()
	}
}

// Pending reports whether the verdict may still wait for this master's first answer.
func (v *Vote) Pending() bool { return v.State == Unasked || v.State == Asked && !v.Slow }

// Unanswered reports whether a request that can bring the hold about may still run: a release must leave a tombstone.
// Neither a raise nor a yield nor a renewal brings back a hold that is gone.
func (v *Vote) Unanswered() bool { return v.Unknown || v.State == Asked || v.inflight == Regain }

// Straggles reports whether such a request may still run although the master has the hold already: then the tombstone
// is due even where the release finds the hold.
func (v *Vote) Straggles() bool { return v.Unknown || v.inflight == Regain }

// answered reports whether the master's last word is an answer about the hold, and not a failure.
func (v *Vote) answered() bool {
	switch v.State {
	case Queued, Granted, Refused, Outvoted:
		return v.Err == nil
	default:
		return false
	}
}

// Package ballot decides one acquisition from the votes of its masters: whether it is granted, with which token and
// until when, and what has to be sent next. It is pure: no clock, no network, no lock. One master is a ballot with one
// vote.
//
// A Vote records what its master reports of the hold. Tally counts the votes. Ballot decides the target, derives the
// verdict from the tally, and chooses the actions.
//
// The rules are the same as in the models of redlock/model:
//
//   - The target is decided once, from the first grants on which a quorum can agree: it is the q-th smallest of their
//     tokens, or a larger token where a quorum cannot reach the q-th smallest. Masters below the target are raised. A
//     master above it does not count: its counter has passed the target independently of it. So every reported token
//     stands on a quorum of masters that had counted to it before. The next quorum shares a master with this one and
//     counts on from there.
//   - The hold is granted when a quorum has granted the target and trust in those grants has not ended. The time is
//     checked last, because a raise takes time.
//   - Contenders without a quorum yield their grants to older holds that wait behind them. The oldest contender keeps
//     its grants. An upgrade counts as older than every other contender. A grant that was offered counts again only
//     with a new token.
package ballot

import (
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Entry is the way in which an acquisition enters.
type Entry uint8

// The entries: wait in the queue, try once, join the standing hold of the same owner, wait at the head of the queue for
// the other readers to leave.
const (
	Wait Entry = iota
	Try
	Join
	Upgrade
)

// Ballot holds the votes of one hold and the token on which they have to agree. It is not safe for concurrent use.
type Ballot struct {
	entry   Entry
	target  fencing.Token // 0 before it is decided
	single  [1]Vote       // for one master: a lease and its vote are one allocation
	several *Tally        // nil for one master
}

// Reach returns the largest token to which a master currently allows a grant to be raised, as far as is known. It is
// called only where the tokens of several grants differ.
type Reach func(master int) fencing.Token

// Start makes b the ballot of a new hold over this many masters.
func (b *Ballot) Start(entry Entry, masters int) {
	b.entry, b.target = entry, 0
	switch {
	case masters == 1:
		b.single[0], b.several = Vote{}, nil
	case b.several != nil && len(*b.several) == masters:
		clear(*b.several)
	default:
		votes := make(Tally, masters)
		b.several = &votes
	}
}

// Votes returns the votes, one for each master. The ballot keeps ownership of them.
func (b *Ballot) Votes() Tally {
	if b.several != nil {
		return *b.several
	}
	return b.single[:]
}

// Vote returns the vote of master i. The ballot keeps ownership of it.
func (b *Ballot) Vote(i int) *Vote { return &b.Votes()[i] }

// Target returns the token on which the votes have to agree, 0 before it is decided. For a granted hold it is the token
// of the grant.
func (b *Ballot) Target() fencing.Token { return b.target }

// Decide returns the verdict at the time now of the caller's clocks.
func (b *Ballot) Decide(
	now clock.Instant, reach Reach,
) (verdict Verdict, token fencing.Token, until clock.Instant) {
	until, agreed := b.agreed(reach)
	switch {
	case agreed && !until.Passed(now):
		return Held, b.target, until
	case agreed, b.target != 0 && b.maxAtTarget() < b.Votes().Quorum():
		return TooLate, 0, clock.Instant{}
	}
	return b.Votes().failed(b.entry), 0, clock.Instant{}
}

// agreed reports whether a quorum has granted the target, and until when a quorum of those grants is trusted. The first
// call that finds a target for a quorum of grants decides it.
func (b *Ballot) agreed(reach Reach) (until clock.Instant, ok bool) {
	if b.target == 0 && !b.decideTarget(reach) {
		return clock.Instant{}, false
	}
	return b.Votes().TrustedUntil(b.target)
}

// decideTarget sets the target if it can be determined. A join adds to a standing hold, so no master may be raised: the
// owner holds the lock with the token that a quorum reports.
func (b *Ballot) decideTarget(reach Reach) bool {
	if b.entry != Join {
		target, ok := b.Votes().target(reach)
		if ok {
			b.target = target
		}
		return ok
	}
	token, grants := b.Votes().commonToken()
	if grants >= b.Votes().Quorum() {
		b.target = token
	}
	return grants >= b.Votes().Quorum()
}

// maxAtTarget returns how many masters may still reach the target.
func (b *Ballot) maxAtTarget() int {
	return b.Votes().count(func(v *Vote) bool {
		switch v.State {
		case Asked:
			return true
		case Granted:
			return v.Counts() && v.Token == b.target || v.Token < b.target && b.entry != Join
		default:
			return false
		}
	})
}

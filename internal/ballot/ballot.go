// Package ballot decides one acquisition from the votes of its masters: whether it is granted, with which token and
// until when, and what has to be sent next. It is pure: no clock, no network, no lock. One master is a ballot with one
// vote.
//
// A Vote takes in what its master says of the hold. Tally counts the votes. Ballot decides the target, draws the
// verdict from the tally, and chooses the actions.
//
// The rules are those of the models in redlock/model:
//
//   - The target is decided once, from the first grants of which a quorum can agree on one: the q-th smallest of their
//     tokens, or a larger one where that cannot be reached. Masters below it are raised. A master above it does not
//     count: its counter has gone past the target without knowing of it. So every token that is reported stands on a
//     quorum of masters that had counted to it before; the next quorum shares a master with it and counts on.
//   - The hold is granted when a quorum has granted the target and their trust has not ended. Time is looked at last:
//     a raise takes some.
//   - Contenders without a quorum yield their grants to older holds that wait behind them. The oldest keeps its grants.
//     One that upgrades counts as older than all others.
//     A grant that was offered back counts again only with a new token.
package ballot

import (
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Entry says how an acquisition gets in.
type Entry uint8

// The ways in: wait in the queue, take it or leave it, join the standing hold of the same owner, wait at the head of
// the queue for the other readers to leave.
const (
	Wait Entry = iota
	Try
	Join
	Upgrade
)

// Ballot is one hold's votes, and the token that they are to agree on. It is not safe for concurrent use.
type Ballot struct {
	entry   Entry
	target  fencing.Token // 0 before it is decided
	single  [1]Vote       // of one master: a lease is one allocation with its vote
	several *Tally        // nil for one
}

// Reach returns the largest token that a master lets a grant be raised to now, as far as is known. It is asked only
// where the tokens of several grants differ.
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

// Votes returns the votes, one for each master. They stay the ballot's.
func (b *Ballot) Votes() Tally {
	if b.several != nil {
		return *b.several
	}
	return b.single[:]
}

// Vote returns the vote of master i. It stays the ballot's.
func (b *Ballot) Vote(i int) *Vote { return &b.Votes()[i] }

// Target returns the token that the votes are to agree on, 0 before it is decided. Of a hold that was granted it is the
// token.
func (b *Ballot) Target() fencing.Token { return b.target }

// Decide draws the verdict. The time is that of the caller's clocks now.
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

// decideTarget sets the target if it can be told. A join adds to a hold that stands, so nothing may be raised: the
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

// maxAtTarget is how many masters may still come to the target.
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

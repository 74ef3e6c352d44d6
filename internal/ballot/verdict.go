package ballot

import (
	"cmp"
	"slices"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Verdict is what the votes come to.
type Verdict uint8

// The verdicts.
const (
	Open       Verdict = iota // not decided yet
	Held                      // granted by a quorum, with one token, in time
	TooLate                   // the grants came to nothing: too late, or no common token; ask with a new hold
	Contended                 // others hold the lock
	NoQuorum                  // fewer than a quorum answered
	Conflicted                // a key of the lock holds something else
	Absent                    // a join, and the owner holds nothing there any more
	Upgrade                   // a join for writing, and the owner only reads
)

// Decide draws the verdict. The time is that of the caller's clocks now.
func (b *Ballot) Decide(now clock.Instant) (verdict Verdict, token fencing.Token, until clock.Instant) {
	until, agreed := b.agreed()
	switch {
	case agreed && !until.Passed(now):
		return Held, b.target, until
	case agreed, b.target != 0 && b.reachable() < b.Quorum():
		return TooLate, 0, clock.Instant{}
	}
	return b.failed(), 0, clock.Instant{}
}

// agreed reports whether a quorum has granted the target, and until when a quorum of those grants is trusted. The first
// call that finds a quorum of grants decides the target.
func (b *Ballot) agreed() (until clock.Instant, ok bool) {
	if b.target == 0 && !b.decideTarget() {
		return clock.Instant{}, false
	}
	return b.TrustedUntil(b.target)
}

// TrustedUntil returns until when a quorum of the grants with this token is trusted, if there is one.
func (b *Ballot) TrustedUntil(token fencing.Token) (until clock.Instant, ok bool) {
	var array [9]clock.Instant
	ends := array[:0]
	for i := range b.votes {
		if v := &b.votes[i]; v.Counts() && v.Token == token {
			ends = append(ends, v.Until)
		}
	}
	if len(ends) < b.Quorum() {
		return clock.Instant{}, false
	}
	slices.SortFunc(ends, func(x, y clock.Instant) int { return cmp.Compare(y.Mono, x.Mono) })
	return ends[b.Quorum()-1], true
}

// First returns the first of the tokens that end with this one: each master that granted it had counted less before.
func (b *Ballot) First(token fencing.Token) (first fencing.Token) {
	for i := range b.votes {
		if v := &b.votes[i]; v.Counts() && v.Token == token {
			first = max(first, v.First)
		}
	}
	return first
}

func (b *Ballot) decideTarget() bool {
	if b.entry == Join {
		token, grants := b.commonToken()
		if grants >= b.Quorum() {
			b.target = token
		}
		return grants >= b.Quorum()
	}
	var array [9]fencing.Token
	tokens := array[:0]
	for i := range b.votes {
		if v := &b.votes[i]; v.Counts() {
			tokens = append(tokens, v.Token)
		}
	}
	if len(tokens) < b.Quorum() {
		return false
	}
	slices.Sort(tokens)
	b.target = tokens[b.Quorum()-1]
	return true
}

// commonToken returns the token that most of the grants share. A join adds to a hold that stands, so nothing may be
// raised: the owner holds the lock with the token that a quorum reports, and a master with another one did not count
// when it was granted.
func (b *Ballot) commonToken() (token fencing.Token, grants int) {
	for i := range b.votes {
		if same := b.Standing(b.votes[i].Token); same > grants {
			token, grants = b.votes[i].Token, same
		}
	}
	return token, grants
}

// reachable is how many masters may still come to the target.
func (b *Ballot) reachable() int {
	return b.count(func(v *Vote) bool {
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

// failed reports why no quorum can come about without asking again, where asking again is useless or not wanted.
func (b *Ballot) failed() Verdict {
	permanent := func(v *Vote) bool { return v.State == Failed && v.Permanent }
	if b.count(permanent) > len(b.votes)-b.Quorum() {
		if b.count(func(v *Vote) bool { return permanent(v) && v.Conflict }) > 0 {
			return Conflicted
		}
		return NoQuorum
	}
	switch {
	case b.entry == Wait || b.mostPossible() >= b.Quorum():
		return Open
	case b.entry == Join:
		return b.joinFailure()
	default:
		return b.tryFailure()
	}
}

// mostPossible is an upper bound of the masters that may agree: the grants so far, and those that have yet to answer.
func (b *Ballot) mostPossible() int {
	pending := b.count((*Vote).Pending)
	if b.entry == Join {
		_, grants := b.commonToken()
		return pending + grants
	}
	return pending + b.countState(Granted)
}

// joinFailure tells an owner that has no standing hold from one that only reads. Taken for the former because a master
// has not heard of its hold yet, a reader would queue a write lock behind its own read lock and wait for itself.
func (b *Ballot) joinFailure() Verdict {
	reading := b.count(func(v *Vote) bool { return v.Reading })
	absent := b.countState(Refused) - reading
	switch {
	case absent > len(b.votes)-b.Quorum():
		return Absent
	case reading > 0:
		return Upgrade
	case b.count((*Vote).Pending) > 0:
		return Open // what is still to come decides between the two
	default:
		return NoQuorum
	}
}

// tryFailure tells a lock that others hold from one that cannot be asked for. Both may be open although it is certain
// that this attempt fails; then what is still to come decides.
func (b *Ballot) tryFailure() Verdict {
	why := b.Standstill()
	if why == Contended || b.Answers()+b.count((*Vote).Pending) < b.Quorum() {
		return why
	}
	return Open
}

// Standstill tells being kept out from not being answered: Contended or NoQuorum.
func (b *Ballot) Standstill() Verdict {
	if b.Answers() >= b.Quorum() {
		return Contended
	}
	return NoQuorum
}

// HandedOff reports whether a grant is one of the queue's, which lasts for the claim until the first renewal.
func (b *Ballot) HandedOff() bool {
	return b.count(func(v *Vote) bool { return v.Counts() && v.HandedOff }) > 0
}

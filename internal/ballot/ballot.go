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
//     its grants. A grant that was offered counts again only with a new token.
//   - A waiter to which fewer masters than a quorum answer gives its grants back, whatever its age: it would keep the
//     lock from all others for as long as it waits. It asks these masters again once a quorum answers.
//   - An upgrade counts as older than every other contender and never yields. The holds in its way end: with a quorum
//     they are released, a single attempt without one gives up, and the grants of a dead client expire.
package ballot

import (
	"cmp"
	"slices"

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
	entry  Entry
	target fencing.Token // 0 before it is decided
	single [1]Vote       // for one master: a lease and its vote are one allocation
	tally  *Tally        // of several masters; nil for one
}

// Reach returns the largest token to which a master currently allows a grant to be raised, as far as is known. It is
// called only where the tokens of several grants differ.
type Reach func(master int) fencing.Token

// Start makes b the ballot of a new hold over this many masters.
func (b *Ballot) Start(entry Entry, masters int) {
	b.entry, b.target = entry, 0
	switch {
	case masters == 1:
		b.single[0], b.tally = Vote{}, nil
	case b.tally != nil && len(*b.tally) == masters:
		clear(*b.tally)
	default:
		votes := make(Tally, masters)
		b.tally = &votes
	}
}

// Votes returns the votes, one for each master. The ballot keeps ownership of them.
func (b *Ballot) Votes() Tally {
	if b.tally != nil {
		return *b.tally
	}
	return b.single[:]
}

// Vote returns the vote of master i. The ballot keeps ownership of it.
func (b *Ballot) Vote(i int) *Vote { return &b.Votes()[i] }

// Target returns the token on which the votes have to agree, 0 before it is decided. For a granted hold it is the token
// of the grant.
func (b *Ballot) Target() fencing.Token { return b.target }

// Decide returns the verdict at the time now of the caller's clocks. The first call that finds a target for a quorum of
// grants decides it.
func (b *Ballot) Decide(
	now clock.Instant, reach Reach,
) (verdict Verdict, token fencing.Token, until clock.Instant) {
	votes, agreed := b.Votes(), false
	if b.target != 0 || b.decideTarget(votes, reach) {
		until, agreed = votes.TrustedUntil(b.target)
	}
	switch {
	case agreed && !until.Passed(now):
		return Held, b.target, until
	case agreed, b.target != 0 && b.maxAtTarget(votes) < votes.Quorum():
		return TooLate, 0, clock.Instant{}
	}
	return votes.failed(b.entry), 0, clock.Instant{}
}

// decideTarget sets the target if it can be determined. A join adds to a standing hold, so no master may be raised: the
// owner holds the lock with the token that a quorum reports.
func (b *Ballot) decideTarget(votes Tally, reach Reach) bool {
	if b.entry != Join {
		target, ok := votes.target(reach)
		if ok {
			b.target = target
		}
		return ok
	}
	token, grants := votes.commonToken()
	if grants >= votes.Quorum() {
		b.target = token
	}
	return grants >= votes.Quorum()
}

// maxAtTarget returns how many masters may still reach the target.
func (b *Ballot) maxAtTarget(votes Tally) int {
	return votes.count(func(v *Vote) bool {
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

// Tally holds the votes on one hold, one for each master.
type Tally []Vote

// Masters returns how many votes there are.
func (t Tally) Masters() int { return len(t) }

// Quorum returns how many votes make a majority.
func (t Tally) Quorum() int { return len(t)/2 + 1 }

// Answers returns how many masters have answered about the hold and have not failed since.
func (t Tally) Answers() int { return t.count((*Vote).answered) }

// MayBeHeld reports whether any master may have state of the hold.
func (t Tally) MayBeHeld() bool { return t.count((*Vote).MayBeHeld) > 0 }

// Standing returns how many masters have granted this token, as far as is known.
func (t Tally) Standing(token fencing.Token) int {
	return t.count(func(v *Vote) bool { return v.Counts() && v.Token == token })
}

// TrustedUntil returns until when a quorum of the grants with this token is trusted, if there is a quorum: the q-th
// latest end of their trust. Until then q masters stand by the grant, so no other quorum can have granted the lock.
func (t Tally) TrustedUntil(token fencing.Token) (until clock.Instant, ok bool) {
	var array [9]clock.Instant
	ends := array[:0]
	for i := range t {
		if v := &t[i]; v.Counts() && v.Token == token {
			ends = append(ends, v.Until)
		}
	}
	quorum := t.Quorum()
	if len(ends) < quorum {
		return clock.Instant{}, false
	}
	slices.SortFunc(ends, func(x, y clock.Instant) int { return cmp.Compare(y.Mono, x.Mono) })
	return ends[quorum-1], true
}

// First returns the first token of the block that ends with this token. It is the largest First of the grants: each
// master that granted the token had counted less before.
func (t Tally) First(token fencing.Token) (first fencing.Token) {
	for i := range t {
		if v := &t[i]; v.Counts() && v.Token == token {
			first = max(first, v.First)
		}
	}
	return first
}

// HandedOff reports whether a grant came from the queue. Such a grant lasts for the hand-off TTL until the first
// renewal.
func (t Tally) HandedOff() bool {
	return t.count(func(v *Vote) bool { return v.Counts() && v.HandedOff }) > 0
}

// MayRenew reports whether an answer is outstanding that may renew the hold on a master, or may show that the master
// can be asked to: a quorum may have granted the hold before this master has answered.
func (t Tally) MayRenew() bool {
	return t.count(func(v *Vote) bool {
		return v.State == Asked && !v.Slow || v.inflight != None && !v.yields()
	}) > 0
}

// OwesRenewal reports whether this master has not answered a renewal.
func (t Tally) OwesRenewal(master int) bool { return t[master].inflight == Renew }

// target returns the token on which the grants have to agree, if it can be determined already. Any token works that no
// grant of a quorum is past, so the first choice is the q-th smallest, where q is the quorum. But a master is raised at
// most a second ahead of its clock: if too few grants can reach the q-th smallest, target takes the next larger token
// that enough grants can reach, or waits for the outstanding answers. With no answer outstanding it returns the q-th
// smallest anyway, because clocks advance.
func (t Tally) target(reach Reach) (token fencing.Token, ok bool) {
	var array [9]fencing.Token
	tokens := array[:0]
	for i := range t {
		if v := &t[i]; v.Counts() {
			tokens = append(tokens, v.Token)
		}
	}
	quorum := t.Quorum()
	if len(tokens) < quorum {
		return 0, false
	}
	slices.Sort(tokens)
	candidates := tokens[quorum-1:]
	for _, candidate := range candidates {
		if candidate == tokens[0] || t.canReach(candidate, reach) >= quorum {
			return candidate, true
		}
	}
	return candidates[0], t.count((*Vote).Pending) == 0
}

// canReach returns how many of the grants have this token or can be raised to it.
func (t Tally) canReach(token fencing.Token, reach Reach) (n int) {
	for i := range t {
		if v := &t[i]; v.Counts() && (v.Token == token || v.Token < token && reach(i) >= token) {
			n++
		}
	}
	return n
}

// commonToken returns the token that most of the grants share, and the number of those grants. A master with a
// different token did not count when the hold was granted.
func (t Tally) commonToken() (token fencing.Token, grants int) {
	for i := range t {
		if same := t.Standing(t[i].Token); same > grants {
			token, grants = t[i].Token, same
		}
	}
	return token, grants
}

// split reports whether all masters that answer in time have answered, and other holds have some of them. The oldest
// contender keeps its grants, because no older one waits behind it, so one round settles a split vote.
func (t Tally) split() bool {
	asked := t.count(func(v *Vote) bool { return v.State == Asked && !v.Slow })
	return asked == 0 && t.inState(Queued) > 0
}

// cutOff reports whether fewer masters than a quorum answer, or may still answer in time. A failed one that is asked
// again may answer: until it fails again, the hold keeps the grants that it gets. But it asks a master that it has left
// only once a quorum has answered, or it would take and leave that grant with each attempt.
func (t Tally) cutOff() bool { return t.Answers()+t.count((*Vote).Pending) < t.Quorum() }

// takeNews reports whether any master has answered, or has become late, since the last call.
func (t Tally) takeNews() (news bool) {
	for i := range t {
		news = news || t[i].news
		t[i].news = false
	}
	return news
}

func (t Tally) inState(s State) int { return t.count(func(v *Vote) bool { return v.State == s }) }

func (t Tally) count(is func(*Vote) bool) (n int) {
	for i := range t {
		if is(&t[i]) {
			n++
		}
	}
	return n
}

// Action is an operation to send to one master.
type Action struct {
	Master int
	Op     Op
	Token  fencing.Token // the target of a raise; of a yield that of the grant; of Ask the largest that was given back
}

// Next appends the operations to send now and marks them in flight. A vote has at most one operation in flight: two
// answers could arrive in either order, and the later one could undo the effect of the earlier one.
//
// A join is neither raised nor yielded. It stands on the grants of another hold, whose token is already decided, and
// taking a grant away would take it from the owner that holds the lock.
func (b *Ballot) Next(actions []Action) []Action {
	if b.tally == nil { // there is nothing to agree on
		return actions
	}
	votes := b.Votes()
	giveWay := votes.takeNews() && votes.split() // a grant that is kept is not offered again for the same reason
	cutOff, asks := votes.cutOff(), b.target == 0 && votes.Answers() >= votes.Quorum()
	for i := range votes {
		v := &votes[i]
		switch {
		case v.State == Left && asks:
			v.Ask()
			actions = append(actions, Action{i, Ask, v.yielded})
		case v.State != Granted || v.inflight != None || b.entry == Join:
		case v.Token < b.target:
			v.inflight = Raise
			actions = append(actions, Action{i, Raise, b.target})
		case b.mayYield(v) && (giveWay || v.yieldRequested || cutOff && v.Err == nil): // else Remind sends it again
			actions = append(actions, b.yield(i))
		}
	}
	return actions
}

// Remind appends what a periodic check of the waiting hold sends in addition to its refresh: it offers a grant without
// a quorum to an older hold whose message was lost, and sends an unanswered yield again, or Leave.
func (b *Ballot) Remind(i int, actions []Action) []Action {
	if v := b.Vote(i); b.mayYield(v) && v.inflight == None {
		return append(actions, b.yield(i))
	}
	return actions
}

// mayYield reports whether the grant of this vote may be given to an older hold. A decided target implies a quorum of
// grants, and a hold with a quorum keeps its grants: the older hold waits for its release. Three other cases also keep
// their grants: a single attempt, because it ends by itself, an upgrade, because it comes first on every master, and a
// ballot over one master, because there is nothing to agree on.
func (b *Ballot) mayYield(v *Vote) bool {
	return v.State == Granted && b.entry == Wait && b.target == 0 && b.tally != nil
}

// yield marks the grant as offered. From then on the grant does not count, regardless of the answer: the older hold may
// already have been granted when the answer arrives (case yield-counted). Only a new token, minted after the offer,
// proves that the grant has come back. The action names the token, so that a late offer does not take away a later
// grant (case yield-unnamed). All of that goes for Leave as well (cases leave-counted and leave-unnamed).
func (b *Ballot) yield(i int) Action {
	v := b.Vote(i)
	v.yieldRequested = false
	v.yielded = max(v.yielded, v.Token)
	if v.inflight = Yield; b.Votes().cutOff() {
		v.inflight = Leave
	}
	return Action{i, v.inflight, v.Token}
}

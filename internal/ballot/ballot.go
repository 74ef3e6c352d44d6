// Package ballot decides one acquisition from the votes of its masters: whether it is granted, with which token and
// until when, and what has to be sent next. It is pure: no clock, no network, no lock. One master is a ballot with one
// vote.
//
// The rules are those of the models in redlock/model:
//
//   - The target is decided once, from the first quorum of grants: the q-th smallest of their tokens. Masters below it
//     are raised. A master above it does not count: its counter has gone past the target without knowing of it. So every
//     token that is reported stands on a quorum of masters that had counted to it before; the next quorum shares a
//     master with it and counts on.
//   - The hold is granted when a quorum has granted the target and their trust has not ended. Time is looked at last:
//     a raise takes some.
//   - Contenders without a quorum yield their grants to older holds that wait behind them. The oldest keeps its grants.
//     A grant that was offered back counts again only with a new token.
package ballot

import "github.com/seed74116694/fencelock/fencing"

// Entry says how an acquisition gets in.
type Entry uint8

// The ways in: wait in the queue, take it or leave it, join the standing hold of the same owner.
const (
	Wait Entry = iota
	Try
	Join
)

// Ballot is the count of one hold's votes. It is not safe for concurrent use.
type Ballot struct {
	entry  Entry
	votes  []Vote
	target fencing.Token // 0 before a quorum has granted
	news   bool          // a master has answered, or is not waited for any more, since the votes were looked at
	single [1]Vote
}

// Start makes b the ballot of a new hold over this many masters.
func (b *Ballot) Start(entry Entry, masters int) {
	b.entry, b.target, b.news = entry, 0, false
	switch {
	case masters == 1:
		b.single[0] = Vote{}
		b.votes = b.single[:]
	case len(b.votes) == masters:
		clear(b.votes)
	default:
		b.votes = make([]Vote, masters)
	}
}

// Masters returns how many votes there are.
func (b *Ballot) Masters() int { return len(b.votes) }

// Quorum returns how many votes make a majority.
func (b *Ballot) Quorum() int { return len(b.votes)/2 + 1 }

// Vote returns the vote of master i. It stays the ballot's.
func (b *Ballot) Vote(i int) *Vote { return &b.votes[i] }

// Answers returns how many masters have said something of the hold and have not failed since.
func (b *Ballot) Answers() int { return b.count((*Vote).answered) }

func (b *Ballot) count(is func(*Vote) bool) (n int) {
	for i := range b.votes {
		if is(&b.votes[i]) {
			n++
		}
	}
	return n
}

func (b *Ballot) countState(s State) int {
	return b.count(func(v *Vote) bool { return v.State == s })
}

// Action is something to be sent to one master.
type Action struct {
	Master int
	Op     Op
	Token  fencing.Token // the target of a raise, the grant's token of a yield
}

// Next appends what has to be sent now, and notes that it is under way.
func (b *Ballot) Next(actions []Action) []Action {
	giveWay := b.news && b.votesAreSplit()
	b.news = false // a grant that is kept is not offered again for the same reason
	for i := range b.votes {
		v := &b.votes[i]
		switch {
		case v.State != Granted || v.inflight != None || b.entry == Join:
		case v.Token < b.target:
			v.inflight = Raise
			actions = append(actions, Action{i, Raise, b.target})
		case b.mayYield(v) && (giveWay || v.yieldRequested):
			actions = append(actions, b.yield(i))
		}
	}
	return actions
}

// Remind appends what a periodic look at the waiting hold has to send beside its refresh: a grant without a quorum is
// offered to an older hold whose message was lost, and a yield that was not answered is sent again.
func (b *Ballot) Remind(i int, actions []Action) []Action {
	if v := &b.votes[i]; b.mayYield(v) && v.inflight == None {
		return append(actions, b.yield(i))
	}
	return actions
}

func (b *Ballot) mayYield(v *Vote) bool {
	return v.State == Granted && b.entry == Wait && b.target == 0 && len(b.votes) > 1
}

func (b *Ballot) yield(i int) Action {
	v := &b.votes[i]
	v.yieldRequested = false
	v.yielded = max(v.yielded, v.Token)
	v.inflight = Yield
	return Action{i, Yield, v.Token}
}

// votesAreSplit reports whether all masters that answer in time have answered, and others have some of them. The
// oldest contender keeps its grants, since no older one waits behind it, so one round settles a split vote.
func (b *Ballot) votesAreSplit() bool {
	asked := b.count(func(v *Vote) bool { return v.State == Asked && !v.Slow })
	return asked == 0 && b.countState(Queued) > 0
}

package ballot

import "github.com/seed74116694/fencelock/fencing"

// Action is an operation to send to one master.
type Action struct {
	Master int
	Op     Op
	Token  fencing.Token // the target of a raise, the grant's token of a yield
}

// Next appends the operations to send now and marks them in flight. A vote has at most one operation in flight: two
// answers could arrive in either order, and the later one could undo the effect of the earlier one.
//
// A join is neither raised nor yielded. It stands on the grants of another hold, whose token is already decided, and
// taking a grant away would take it from the owner that holds the lock.
func (b *Ballot) Next(actions []Action) []Action {
	votes := b.Votes()
	giveWay := votes.takeNews() && votes.split() // a grant that is kept is not offered again for the same reason
	for i := range votes {
		v := &votes[i]
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

// Remind appends what a periodic check of the waiting hold sends in addition to its refresh: it offers a grant without
// a quorum to an older hold whose message was lost, and sends an unanswered yield again.
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
	return v.State == Granted && b.entry == Wait && b.target == 0 && b.several != nil
}

// yield marks the grant as offered. From then on the grant does not count, regardless of the answer: the older hold may
// already have been granted when the answer arrives (case yield-counted). Only a new token, minted after the offer,
// proves that the grant has come back. The action names the token, so that a late offer does not take away a later
// grant (case yield-unnamed).
func (b *Ballot) yield(i int) Action {
	v := b.Vote(i)
	v.yieldRequested = false
	v.yielded = max(v.yielded, v.Token)
	v.inflight = Yield
	return Action{i, Yield, v.Token}
}

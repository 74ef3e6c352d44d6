package ballot

import "github.com/seed74116694/fencelock/fencing"

// Action is something to be sent to one master.
type Action struct {
	Master int
	Op     Op
	Token  fencing.Token // the target of a raise, the grant's token of a yield
}

// Next appends what has to be sent now, and notes that it is under way. At most one operation of a vote is: two at once
// would come back in any order, and the later could undo what the earlier had said.
//
// A join is neither raised nor yielded. It stands on another hold's grants, whose token is decided already, and whoever
// took it away would take it from the owner who holds the lock.
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

// Remind appends what a periodic look at the waiting hold has to send beside its refresh: a grant without a quorum is
// offered to an older hold whose message was lost, and a yield that was not answered is sent again.
func (b *Ballot) Remind(i int, actions []Action) []Action {
	if v := b.Vote(i); b.mayYield(v) && v.inflight == None {
		return append(actions, b.yield(i))
	}
	return actions
}

// mayYield reports whether the grant of this vote may be given to an older hold. With a target there is a quorum of
// grants, and a hold that has one keeps them: the older one waits for its release. A single attempt keeps its grants
// too, since it ends by itself, one that upgrades since it comes first on every master, and one master needs no
// agreement.
func (b *Ballot) mayYield(v *Vote) bool {
	return v.State == Granted && b.entry == Wait && b.target == 0 && b.several != nil
}

// yield notes that the grant is offered. From now on it does not count, whatever becomes of the offer: the older hold
// may have been granted already when the request is answered (case yield-counted), and only a new token, minted after
// that, shows that the grant has come back. The action names the token, so that a late offer does not take a later
// grant (case yield-unnamed).
func (b *Ballot) yield(i int) Action {
	v := b.Vote(i)
	v.yieldRequested = false
	v.yielded = max(v.yielded, v.Token)
	v.inflight = Yield
	return Action{i, Yield, v.Token}
}

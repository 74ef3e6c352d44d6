package ballot

import "github.com/seed74116694/fencelock/fencing"

// Action is something to be sent to one master.
type Action struct {
	Master int
	Op     Op
	Token  fencing.Token // the target of a raise, the grant's token of a yield
}

// Next appends what has to be sent now, and notes that it is under way.
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

func (b *Ballot) mayYield(v *Vote) bool {
	return v.State == Granted && b.entry == Wait && b.target == 0 && b.several != nil
}

func (b *Ballot) yield(i int) Action {
	v := b.Vote(i)
	v.yieldRequested = false
	v.yielded = max(v.yielded, v.Token)
	v.inflight = Yield
	return Action{i, Yield, v.Token}
}

package ballot

// Verdict is what the votes come to. A failure is drawn only when no answer that is still to come could change it,
// except that nobody waits for an answer which might make up for trust that has ended: TooLate.
type Verdict uint8

// The verdicts.
const (
	Open       Verdict = iota // not decided yet
	Held                      // granted by a quorum, with one token, in time
	TooLate                   // the grants came to nothing: too late, or no common token; ask with a new hold
	Contended                 // others hold the lock
	NoQuorum                  // fewer than a quorum answered
	Conflicted                // a key of the lock holds something else
	Short                     // masters have granted it, and too few of their replicas have it
	Absent                    // a join, and the owner holds nothing there any more
	OnlyReads                 // a join for writing, and the owner only reads
	Rival                     // an upgrade, and another reader is upgrading already
)

// failed reports why no quorum can come about without asking again, where asking again is useless or not wanted. One
// who waits goes on waiting as long as masters might answer: only refusals that no repetition cures end it.
func (t Tally) failed(entry Entry) Verdict {
	permanent := func(v *Vote) bool { return v.State == Failed && v.Permanent }
	if t.count(permanent) > len(t)-t.Quorum() {
		switch {
		case t.count(func(v *Vote) bool { return permanent(v) && v.Conflict }) > 0:
			return Conflicted
		case t.count(func(v *Vote) bool { return permanent(v) && v.Short }) > 0:
			return Short
		default:
			return NoQuorum
		}
	}
	switch {
	// One master's word is enough: two who each waited for the other on some of them would wait for ever.
	case entry == Upgrade && t.count(func(v *Vote) bool { return v.Rival }) > 0:
		return Rival
	case entry == Wait || entry == Upgrade || t.maxAgreeing(entry) >= t.Quorum():
		return Open
	case entry == Join:
		return t.joinFailure()
	default:
		return t.tryFailure()
	}
}

// maxAgreeing is an upper bound of the masters that may agree: the grants so far, and those that have yet to answer.
func (t Tally) maxAgreeing(entry Entry) int {
	pending := t.count((*Vote).Pending)
	if entry == Join {
		_, grants := t.commonToken()
		return pending + grants
	}
	return pending + t.inState(Granted)
}

// joinFailure tells an owner that has no standing hold from one that only reads. Taken for the former because a master
// has not heard of its hold yet, a reader would queue a write lock behind its own read lock and wait for itself.
func (t Tally) joinFailure() Verdict {
	reading := t.count(func(v *Vote) bool { return v.Reading })
	absent := t.inState(Refused) - reading
	switch {
	case absent > len(t)-t.Quorum():
		return Absent
	case reading > 0:
		return OnlyReads
	case t.count((*Vote).Pending) > 0:
		return Open // what is still to come decides between the two
	default:
		return NoQuorum
	}
}

// tryFailure tells a lock that others hold from one that cannot be asked for. Both may be open although it is certain
// that this attempt fails; then what is still to come decides.
func (t Tally) tryFailure() Verdict {
	why := t.WaitFailure()
	if why == Contended || t.Answers()+t.count((*Vote).Pending) < t.Quorum() {
		return why
	}
	return Open
}

// WaitFailure tells being kept out from not being answered: Contended or NoQuorum. It is for one whose waiting has
// ended for another reason, so no answer is waited for. A quorum of grants without a common token keeps nobody out.
func (t Tally) WaitFailure() Verdict {
	if t.Answers() >= t.Quorum() && t.count((*Vote).Counts) < t.Quorum() {
		return Contended
	}
	return NoQuorum
}

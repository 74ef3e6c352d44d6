package ballot

// Verdict is the result of the votes. A failure is returned only when no outstanding answer could change it. The
// exception is TooLate, which does not wait for an answer that might compensate for trust that has ended.
type Verdict uint8

const (
	Open      Verdict = iota // not decided
	Held                     // granted by a quorum, with one token, in time
	TooLate                  // the grants failed: too late, or no common token. Ask with a new hold
	Contended                // other holds have the lock
	NoQuorum                 // fewer than a quorum answered
	Conflict                 // a key of the lock holds a foreign value
	Short                    // masters have granted it, and too few of their replicas have it
	Absent                   // a join was refused: the owner holds nothing there any more
	OnlyReads                // a join for writing was refused: the owner only reads
	Rival                    // an upgrade was refused: another reader is upgrading already

	LastVerdict = Rival
)

// failed returns the reason why no quorum is possible without asking again, in cases where asking again is useless or
// not wanted. A waiter keeps waiting as long as masters might answer: only permanent refusals end its wait.
func (t Tally) failed(entry Entry) Verdict {
	permanent := func(v *Vote) bool { return v.State == Failed && v.Permanent }
	if t.count(permanent) > len(t)-t.Quorum() {
		switch {
		case t.count(func(v *Vote) bool { return permanent(v) && v.Conflict }) > 0:
			return Conflict
		case t.count(func(v *Vote) bool { return permanent(v) && v.Short }) > 0:
			return Short
		default:
			return NoQuorum
		}
	}
	switch {
	// The refusal of one master is enough: two upgrades that each waited for the other on some masters would never end.
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

// maxAgreeing returns an upper bound of the masters that may agree: the grants so far plus the outstanding answers.
func (t Tally) maxAgreeing(entry Entry) int {
	pending := t.count((*Vote).Pending)
	if entry == Join {
		_, grants := t.commonToken()
		return pending + grants
	}
	return pending + t.inState(Granted)
}

// joinFailure distinguishes an owner without a standing hold from an owner that only reads. If a reader were reported
// Absent because one master does not know its hold, it would queue a write lock behind its own read lock and wait for
// itself.
//
// Another process of the owner may release one hold and get the next one meanwhile: of three masters one then knows
// the first, one the second, and one neither. No quorum has either of them, so that is Absent too.
func (t Tally) joinFailure() Verdict {
	reading := t.count(func(v *Vote) bool { return v.Reading })
	_, same := t.commonToken()
	unsure := t.count(func(v *Vote) bool { return v.State != Granted && v.State != Refused })
	switch {
	case same+reading+unsure < t.Quorum():
		return Absent
	case reading > 0:
		return OnlyReads
	case t.count((*Vote).Pending) > 0:
		return Open // the outstanding answers decide between the two
	default:
		return NoQuorum
	}
}

// tryFailure distinguishes a lock that other holds have from a lock whose masters do not answer. The failure can be
// certain before its reason is. The outstanding answers then decide the reason.
func (t Tally) tryFailure() Verdict {
	why := t.WaitFailure()
	if why == Contended || t.Answers()+t.count((*Vote).Pending) < t.Quorum() {
		return why
	}
	return Open
}

// Unadopted returns how many masters refused an adoption because another one stands there, and how many because they do
// not have the detached hold.
func (t Tally) Unadopted() (rivals, gone int) {
	rivals = t.count(func(v *Vote) bool { return v.State == Refused && v.Rival })
	return rivals, t.inState(Refused) - rivals
}

// WaitFailure returns Contended where other holds kept the waiter out, and NoQuorum where too few masters answered. It
// is for a waiter whose wait has ended for another reason, so it does not wait for outstanding answers. A quorum of
// grants without a common token is not contention.
func (t Tally) WaitFailure() Verdict {
	if t.Answers() >= t.Quorum() && t.count((*Vote).Counts) < t.Quorum() {
		return Contended
	}
	return NoQuorum
}

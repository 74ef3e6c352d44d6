package engine

import (
	"cmp"
	"slices"
	"sync"

	"github.com/seed74116694/fencelock/internal/transport"
)

// releaseCount counts the masters' answers to a release. It has no mutex: the count of a single master is on the
// caller's stack.
type releaseCount struct {
	need, all   int
	had, hadNot int
	failures    []NodeFailure
}

func (c *releaseCount) add(had bool, failure *NodeFailure) {
	switch {
	case failure != nil:
		c.failures = append(c.failures, *failure)
	case had:
		c.had++
	default:
		c.hadNot++
	}
}

// isCertain reports whether the outstanding answers cannot change either part of the verdict: that a quorum let go, and
// that a quorum had nothing to let go of.
func (c *releaseCount) isCertain() bool {
	open := c.all - c.had - c.hadNot - len(c.failures)
	return c.released() && c.hadNot+open < c.need || c.lost() || open == 0
}

// released reports whether a quorum does not have the hold any more, and so may grant the lock to other holds.
func (c *releaseCount) released() bool { return c.had+c.hadNot >= c.need }

// lost reports whether a quorum no longer had the hold when the release arrived. The lease did not protect anything by
// then.
func (c *releaseCount) lost() bool { return c.hadNot >= c.need }

// verdict returns a *Loss if the hold did not stand any more when the release arrived, because the caller that relied
// on it must know.
func (c *releaseCount) verdict(of *voting) error {
	switch {
	case c.lost():
		of.e.suspect(of.key.lock())
		return &Loss{Name: of.name, Token: of.token(), Reason: Taken, by: of.e, lock: of.key.lock()}
	case c.released():
		return nil
	}
	u := &Unconfirmed{Name: of.name, Need: c.need, Got: c.had + c.hadNot, Nodes: c.failures}
	kind, forGood := of.e.refusal(c.failures)
	u.Conflict, u.Refused = kind == Conflict, forGood
	return u
}

// releaseVotes counts the answers of several masters. It outlives the call that waits for it, because answers may
// arrive after the call's timeout. Until the count is certain, the release is unconfirmed, whether the call still waits
// or not.
type releaseVotes struct {
	e       *Engine
	certain chan struct{} // closed when further answers change nothing

	mu       sync.Mutex // guards what follows
	decided  bool       // certain is closed
	answers  releaseCount
	answered []bool // of each master
}

func newReleaseVotes(e *Engine) *releaseVotes {
	e.unconfirmed.add(+1)
	return &releaseVotes{
		e: e, certain: make(chan struct{}), answered: make([]bool, len(e.masters)),
		answers: releaseCount{need: e.quorum(), all: len(e.masters)},
	}
}

// count counts one master's answer.
func (v *releaseVotes) count(master int, had bool, failure *NodeFailure) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answered[master] = true
	v.answers.add(had, failure)
	if v.answers.isCertain() && !v.decided {
		v.decided = true
		close(v.certain)
		v.e.unconfirmed.add(-1)
	}
}

// verdict returns the verdict of the answers so far. Later answers change nothing for the caller. A release that they
// show to have failed continues in the background. If no quorum has confirmed, the masters that are still silent are
// causes too. The silence is given as the release timeout, which is right for Release, the only caller that uses it.
func (v *releaseVotes) verdict(of *voting) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.answers.verdict(of)
	if u, ok := err.(*Unconfirmed); ok {
		u.Nodes = slices.Clone(u.Nodes)
		for i, m := range of.e.masters {
			if !v.answered[i] {
				silence := &transport.NoReply{After: of.e.cfg.ReleaseTimeout}
				u.Nodes = append(u.Nodes, NodeFailure{Index: i, Addr: m.At(of.key.lock()).Addr(), Err: silence})
			}
		}
		slices.SortFunc(u.Nodes, func(a, b NodeFailure) int { return cmp.Compare(a.Index, b.Index) })
	}
	return err
}

package engine

import (
	"cmp"
	"slices"
	"sync"

	"github.com/seed74116694/fencelock/internal/transport"
)

// releaseCount counts the masters' answers to a release. It has no mutex: that of a single master is on the caller's
// stack.
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

// isCertain reports whether the answers to come can change neither of the verdict's two parts: that a quorum let go,
// and that a quorum had nothing to let go of.
func (c *releaseCount) isCertain() bool {
	open := c.all - c.had - c.hadNot - len(c.failures)
	return c.released() && c.hadNot+open < c.need || c.lost() || open == 0
}

// released reports whether a quorum has the hold no more, and so may let others in.
func (c *releaseCount) released() bool { return c.had+c.hadNot >= c.need }

// lost reports whether a quorum did not have the hold any more when the release came: it was no lock by then.
func (c *releaseCount) lost() bool { return c.hadNot >= c.need }

// verdict is a *Loss where it was no lock any more when the release came: whoever relied on it has to know.
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

// releaseVotes is the count of several masters. It outlives the call that waits for it: answers may come after its
// timeout. Until it is certain the release is unconfirmed, whether that call still waits or not.
type releaseVotes struct {
	e       *Engine
	certain chan struct{} // closed when more answers change nothing
	then    func()        // called after that; nil for nothing

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

// count takes in one master's answer.
func (v *releaseVotes) count(master int, had bool, failure *NodeFailure) {
	v.mu.Lock()
	v.answered[master] = true
	v.answers.add(had, failure)
	decides := v.answers.isCertain() && !v.decided
	if decides {
		v.decided = true
		close(v.certain)
		v.e.unconfirmed.add(-1)
	}
	v.mu.Unlock()
	if decides && v.then != nil {
		v.then()
	}
}

// verdict is that of the answers so far. Those that come later change nothing for the caller; a release that they show
// to have failed goes on in the background. Where no quorum has confirmed, the masters that are still silent are causes
// too: since the release timeout, for Release, and nobody else wants to know.
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

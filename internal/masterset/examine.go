package masterset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Reading is the marker of one master, as it was read without a change.
type Reading struct{ reply reply }

// Standing is what a Reading says of the master's vote. All is zero if it votes, or has not answered.
type Standing struct {
	Abstains time.Duration // until it votes, from the first acquisition if Err says that one is needed
	Err      error         // the reason that it has no vote, if time alone does not end this
}

// Read reads the marker of a master, and changes nothing.
func (s *Set) Read(ctx context.Context, master int) Reading {
	m, r := s.cfg.Masters[master], &request{purpose: look, reads: true}
	if len(s.cfg.Masters) == 1 {
		r.purpose = forSingle
	}
	result, _ := m.Do(ctx, 0, s.script, []string{s.cfg.Key}, wire.Vote{}, r.args("", 0))
	answer := readReply(result)
	if transport.FromCluster(answer.err) && m.Standalone {
		answer = reply{cluster: true}
	}
	return Reading{answer}
}

// Examine applies the rules to the markers of all masters, as a pass does, and changes nothing.
func (s *Set) Examine(all []Reading) []Standing {
	s.mu.Lock()
	v, founding := s.view, "the first lock founds it, and takes"
	v.history = v.clone()
	if s.current != nil {
		founding = "founding it has begun, and takes"
	}
	s.mu.Unlock()
	standings := make([]Standing, len(all))
	if len(all) == 1 {
		standings[0].Err = v.validateAlone(all[0].reply)
		return standings
	}
	replies := make([]reply, len(all))
	for i := range all {
		replies[i] = all[i].reply
	}
	found := v.judge(replies)
	refused, follows := v.refusal(found), v.conclude(found)
	for i, f := range found {
		standing := &standings[i]
		switch quarantine := Quarantine(s.cfg.LongestTTL); {
		case f.state == silent:
		case f.state == unfit:
			standing.Err = f.defect
		case f.state == unmarked && refused != nil:
			standing.Err = errors.New("has no marker, and gets none while too many masters are unfit")
		case f.state == unmarked && follows == foundNew:
			standing.Abstains = quarantine
			standing.Err = fmt.Errorf("belongs to no set so far: %s %v", founding, quarantine)
		case !f.inOrder():
			standing.Abstains = quarantine
			standing.Err = fmt.Errorf("may have lost leases: the next lock has it abstain for %v", quarantine)
		default:
			standing.Abstains = f.abstains
		}
	}
	return standings
}

// Begin starts the first pass, if none has begun, and waits for nothing. Passes follow each other until one has found
// every master in order. Servers may begin after their clients, and Ping changes nothing: without that, a client that
// waits for Ping before its first lock would wait for good.
func (s *Set) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		s.startLocked()
		s.cfg.Spawn(s.goOn)
	}
}

// goOn has passes follow each other until one has found every master in order.
func (s *Set) goOn() {
	for pause := passPause; ; pause = min(2*pause, mostBeginPause) {
		_ = s.Check(s.cfg.Life) // starts the pass that is due
		s.mu.Lock()
		settled := s.settled
		s.mu.Unlock()
		if settled {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.cfg.Life.Done():
			timer.Stop()
			return
		}
	}
}

// Found founds a set by the word of its caller that its masters are new, and returns once they vote: see foundByWord.
// It refuses masters of which one does not answer, is unfit or has a marker, and those of which inUse says that they
// have keys of locks. The Set is for this call alone.
func (s *Set) Found(ctx context.Context, inUse func() error) error {
	s.grace = 2 * s.cfg.QuorumTimeout // every master is waited for
	b := &bootstrap{view: s.view, ask: s.askAll, newID: s.cfg.NewID}
	return b.foundByWord(ctx, inUse)
}

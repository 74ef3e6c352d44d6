package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// membership finds out what the masters are: that their locks have this layout and, of several, that they are distinct
// servers which decide for themselves, and one set that all clients agree on. It gives a marker to those that have none:
// all at once to a new set, which may vote immediately; to one that has lost its data beside others that have theirs,
// with a quarantine. It runs before the first acquisition, and again when a master says that its marker is not the one
// that was seen.
type membership struct {
	e *Engine

	mu      sync.Mutex
	current *survey       // under way, or the last one
	ended   time.Duration // when the last one did
	usable  bool          // one found nothing against the set, and a quorum in order
	settled bool          // the last one found every master in order
	seats   []string      // of the masters, as far as they were seen
	runs    []string      // the run ids that they had
	grace   time.Duration // how long a quorum is waited for

	postponed bool // a recheck waits
}

// survey is one look at all masters.
type survey struct {
	done chan struct{}
	err  error // what keeps this set from being used at all
}

// ErrSet is a set of masters that must not be used together.
var ErrSet = errors.New("unusable set of masters")

// Abstaining is the answer of a master that has no vote yet.
type Abstaining struct{ For time.Duration }

func (e *Abstaining) Error() string {
	if e.For == 0 {
		return "abstains: its marker is missing or has changed, and is being looked at"
	}
	return fmt.Sprintf("abstains for another %v: it may have lost leases that still live", e.For)
}

// surveyPause is how long after an incomplete or refused survey the next acquisition starts another.
const surveyPause = time.Second

// A quorum is waited for a little longer in the first survey, for which connections have to be opened.
const (
	graceFirst = 2 * time.Second
	graceMin   = 500 * time.Millisecond
)

// recheckPause is how long after a survey the next one starts at the earliest.
const recheckPause = 50 * time.Millisecond

func newMembership(e *Engine) *membership {
	return &membership{
		e: e, seats: make([]string, len(e.cfg.Clients)), runs: make([]string, len(e.cfg.Clients)),
		grace: max(e.cfg.NodeTimeout, graceFirst),
	}
}

// visitTimes returns for how long all masters are waited for, and for how long a quorum.
func (s *membership) visitTimes() (late, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable {
		return s.e.cfg.NodeTimeout, s.grace
	}
	return s.grace / 2, s.grace // a set that is founded without one of its masters has to wait for it later
}

// runBefore returns the run id that master i had when it was last seen in order.
func (s *membership) runBefore(i int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[i]
}

// check waits for the first survey, which every acquisition shares. While masters are missing from it, or the set was
// refused, it is taken again, for a usable set without anybody waiting. A nil error does not promise that there is a
// quorum: masters that were not seen in order do not vote.
func (s *membership) check(ctx context.Context) error {
	now := s.e.clock.Now().Mono
	s.mu.Lock()
	current := s.current
	if current == nil || !s.settled && current.over() && now-s.ended >= surveyPause {
		current = s.startLocked()
	}
	usable := s.usable
	s.mu.Unlock()
	if usable {
		return nil
	}
	select {
	case <-current.done:
		return current.err
	case <-ctx.Done():
		return nil // the acquisition itself tells what is wrong
	}
}

func (c *survey) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// recheck starts a survey unless one is under way or has just ended.
func (s *membership) recheck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, since := s.current, s.e.clock.Now().Mono-s.ended
	switch {
	case c != nil && !c.over():
	case c == nil || since >= recheckPause:
		s.startLocked()
	case !s.postponed:
		s.postponed = s.e.spawn(func() { s.recheckAfter(recheckPause - since) })
	}
}

func (s *membership) recheckAfter(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.e.life.Done():
		return
	}
	s.mu.Lock()
	s.postponed = false
	s.mu.Unlock()
	s.recheck()
}

func (s *membership) startLocked() *survey {
	c := &survey{done: make(chan struct{})}
	s.current, s.settled = c, false
	if !s.e.spawn(func() { s.finish(c) }) {
		close(c.done)
	}
	return c
}

func (s *membership) finish(c *survey) {
	cards, changed, err := s.take(s.e.life)
	inOrder, moved := 0, false
	if err == nil {
		inOrder, moved = s.adopt(cards)
	}
	s.mu.Lock()
	before := s.usable
	c.err, s.ended = err, s.e.clock.Now().Mono
	s.settled = err == nil && inOrder == len(cards)
	s.usable = err == nil && inOrder >= s.e.quorum()
	if !s.usable { // the links may be slow
		s.grace = min(2*s.grace, patience)
	}
	if s.usable {
		s.grace = max(s.e.cfg.NodeTimeout, graceMin)
	}
	news := changed || moved || s.usable && !before
	s.mu.Unlock()
	close(c.done)
	if err != nil {
		s.e.failWaiters(Unusable, err)
	}
	if news {
		for _, w := range s.e.waiters {
			w.wakeAll()
		}
	}
}

// adopt takes over what the markers say of the masters, and returns how many are in order.
func (s *membership) adopt(cards []card) (inOrder int, moved bool) {
	for i, c := range cards {
		if c.err != nil || c.layout == "" || len(cards) > 1 && c.set == "" {
			continue
		}
		inOrder++
		s.mu.Lock()
		s.seats[i], s.runs[i] = c.seat, c.run
		s.mu.Unlock()
		if len(cards) > 1 {
			moved = s.e.masters[i].SetIdentity(c.id, c.dials) || moved
		}
	}
	for _, c := range cards {
		if c.set != "" {
			s.salt(c)
			break
		}
	}
	return inOrder, moved
}

// salt gives the scripts digests that only clients of this set can have loaded. Those that may not read the run id have
// others than those that may: what the former load says nothing of a restart.
func (s *membership) salt(c card) {
	salt := c.set
	if c.run == "" {
		salt += " without run id"
	}
	if old := s.e.scripts.Load(); old.salt != salt {
		s.e.scripts.Store(newScriptSet(salt))
	}
}

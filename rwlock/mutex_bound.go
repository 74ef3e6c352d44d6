package rwlock

import (
	"errors"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
)

// bound is WithMaxHold for one section. The engine's own limit does not do: it counts from the grant of the lease,
// under which many sections follow each other. It is guarded by the section's mu.
type bound struct {
	max   time.Duration
	end   time.Time // it counts from the last reader that joined
	timer *time.Timer
}

// setBound sets the bound going, if there is one.
func (s *section) setBound(limit time.Duration) {
	if limit == 0 {
		return
	}
	s.bound = &bound{max: limit, end: time.Now().Add(limit)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound.timer = time.AfterFunc(limit, s.fire)
}

// stopBound follows the end of the section. No timer is set after that.
func (s *section) stopBound() {
	if s.bound != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bound.timer.Stop()
	}
}

// fire ends the section where the bound is reached, or waits on for one that has moved.
func (s *section) fire() {
	if s.reached() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.bound.timer.Reset(time.Until(s.bound.end))
	}
}

// reached returns the loss once the bound is reached. It looks at the clock, as Lease.Err does, so it does not depend
// on when the timer comes to it. Whoever notices ends the lease as lost: the section stands until it is unlocked, but
// another process gets the lock. It is not called under mu, as lost is not.
func (s *section) reached() error {
	if s.bound == nil {
		return nil
	}
	s.mu.Lock()
	over, reached := s.over, !time.Now().Before(s.bound.end)
	s.mu.Unlock()
	if over == nil && reached {
		over = s.end(&LostError{Name: s.mutex.name, Token: s.fence.token(), Reason: MaxHold, Limit: s.bound.max})
	}
	loss, lost := errors.AsType[*LostError](over)
	if !lost { // it was left in this moment, and others may be in under the lease
		return nil
	}
	// By everybody who gets here: it is lost before Unlock comes to release it.
	engine.LoseAt(&s.remote.lease.inner, s.bound.max, loss.Token)
	return over
}

// extend moves the bound for one more reader, if it is not reached yet. Each reader is promised the whole time, so the
// last one that joined counts.
func (s *section) extend() bool {
	if s.lost() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound.end = time.Now().Add(s.bound.max)
	return s.over == nil
}

package rwlock

import (
	"errors"
	"time"
)

// bound is WithMaxHold for one section. The engine's own limit does not suffice: it counts from the grant of the lease,
// under which many sections follow each other. The section's mu guards it.
type bound struct {
	max   time.Duration
	end   time.Time // counted from the last reader that joined
	timer *time.Timer
}

// setBound starts the bound, if there is one.
func (s *section) setBound(limit time.Duration) {
	if limit == 0 {
		return
	}
	s.bound = &bound{max: limit, end: time.Now().Add(limit)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound.timer = time.AfterFunc(limit, s.fire)
}

// stopBound stops the timer after the end of the section. No timer is set after that.
func (s *section) stopBound() {
	if s.bound != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bound.timer.Stop()
	}
}

// fire ends the section if the bound is reached, or sets the timer again if the bound has moved.
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

// reached returns the loss once the bound is reached. It checks the clock, as Lease.Err does, so it does not depend on
// when the timer fires. The goroutine that notices the end also ends the lease as lost: the section stands until it is
// unlocked, but another process gets the lock. Like lost, it is not called under mu.
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
	if !lost { // its holders have just left, and the next section may stand under the lease
		return nil
	}
	// Every goroutine that gets here calls it, so that the lease is lost before Unlock comes to release it.
	s.remote.lease.inner.LoseAt(s.bound.max, loss.Token)
	return over
}

// extend moves the bound for one more reader, unless it is already reached. Each reader is promised the whole time, so
// the last reader that joined counts.
func (s *section) extend() bool {
	if s.lost() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound.end = time.Now().Add(s.bound.max)
	return s.over == nil
}

package rwlock

import (
	"context"
	"fmt"

	"github.com/seed74116694/fencelock/internal/clock"
)

// leave is Unlock and RUnlock. The last holder to leave admits the next waiter under the remote hold, keeps the hold
// for a time, or releases it.
//
// The steps have to be in this order. The loss is checked before mu is taken. The contexts of the section end before
// another goroutine enters, and without mu: the queue is paused from Leave on. The remote hold is detached before its
// release, so that no goroutine enters under a lease that is about to be released. The queue resumes only after the
// release, so that the next request does not wait behind the hold of its own process; with WithBackgroundRelease it
// resumes once the release is posted, because the next request waits for its answer. A lost section is not followed by
// another one: its lease has ended.
func (m *RWMutex) leave(ctx context.Context, mode Mode) error {
	if m.isUnusable() {
		return m.unusable()
	}
	now := m.locker.engine.Now()
	if mode == Read && m.leaveOthers(now) {
		return nil
	}
	s, lost := m.lockSection(now)
	held, last := m.queue.Leave(mode)
	if !held || !last {
		m.unlock()
		if !held {
			return fmt.Errorf("%w: %q for %s", ErrNotHeld, m.name, mode)
		}
		return lost
	}
	now, lost = m.endSection(s, lost, now)
	if lost == nil && m.handOn(s.remote, now) {
		m.unlock()
		return nil
	}
	m.detach(s.remote)
	m.unlock()
	defer func() { // also if the release is not confirmed: the next leader waits for it at Redis
		m.mu.Lock()
		defer m.unlock()
		m.queue.Resume()
		m.disclaimIfUnused()
	}()
	return s.release(ctx, lost)
}

// endSection ends a section that its last holder has left. It is called under mu, which it unlocks while contexts end.
// It returns the time, and the loss, also by a limit that was reached a moment ago.
func (m *RWMutex) endSection(s *section, lost error, now clock.Instant) (clock.Instant, error) {
	end := lost
	if end == nil {
		end = m.released
	}
	ends, over := s.finish(end)
	if lost == nil && over != m.released {
		lost = s.asLost(over)
	}
	if len(ends) > 0 {
		m.current.Store(nil)
		m.unlock()
		ends.Cancel(over)
		now = m.locker.engine.Now()
		m.mu.Lock()
	}
	return now, lost
}

// lockSection takes mu and returns the section that is current then, nil for none, and its loss. It checks the loss
// before it takes mu, because a loss that is noticed there runs hooks. While the caller is a holder the section stays
// the same; otherwise the section may change in between, and lockSection starts again. A section that began after now
// is trusted.
func (m *RWMutex) lockSection(now clock.Instant) (*section, error) {
	for {
		s := m.current.Load()
		var lost error
		if s != nil && (s.limit != nil || !s.remote.lease.inner.Trusted(now)) {
			lost = s.lost()
		}
		m.mu.Lock()
		if m.current.Load() == s {
			return s, lost
		}
		m.unlock()
	}
}

// leaveOthers removes a reader, without the mutex, if other readers stay and the lease is trusted. If the lease is not,
// leave has to return the loss to the reader.
func (m *RWMutex) leaveOthers(now clock.Instant) bool {
	s := m.current.Load()
	return s != nil && s.limit == nil && s.remote.trusted(now) && m.queue.TryLeave()
}

// handOn admits the next waiter under the remote hold or, without one, keeps the hold for a later goroutine. It is
// called under mu and reports whether it did. It sends no command, so the lock passes between goroutines of a process
// at memory speed.
func (m *RWMutex) handOn(h *remoteHold, now clock.Instant) bool {
	mode, waits := m.queue.Next()
	if !waits {
		return m.startLinger(h, now)
	}
	if !h.serves(mode, now) {
		return false
	}
	m.current.Store(h.newSection(m, mode))
	m.queue.AdmitFirst()
	return true
}

// release releases the lease and returns how it has ended for the section. Only the last holder to leave gets the
// answer from Redis: the other holders have unlocked already.
func (s *section) release(ctx context.Context, lost error) error {
	if lost != nil {
		_ = s.reached() // the goroutine that ended the section at its limit may not have ended the lease so far
	}
	err := s.remote.lease.Release(ctx)
	if lost != nil {
		return lost
	}
	if loss := s.asLost(err); loss != nil {
		return loss
	}
	return err
}

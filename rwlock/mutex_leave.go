package rwlock

import (
	"context"
	"fmt"

	"github.com/seed74116694/fencelock/internal/clock"
)

// leave is Unlock and RUnlock. The last to leave hands the place on under the remote hold, keeps that for a time, or
// gives it back.
//
// The order of its steps: the loss is asked for before mu is taken; the contexts of the section end before anybody else
// is in, and without mu; the remote hold is forgotten before it is given back, so that nobody enters under a lease that
// is about to be released; and the place is free again only after that. A section that was lost is not handed on: its
// lease has ended.
func (m *place) leave(ctx context.Context, mode Mode) error {
	now := m.locker.engine.Now()
	if mode == Read && m.leaveOthers(now) {
		return nil
	}
	s, lost := m.lockSection(now)
	held, last := m.local.depart(mode)
	if !held || !last {
		m.unlock()
		if !held {
			return fmt.Errorf("%w: %q for %s", ErrNotHeld, m.name, mode)
		}
		return lost
	}
	lost, now = m.endSection(s, lost, now)
	if lost == nil && m.handOn(s.remote, now) {
		m.unlock()
		return nil
	}
	m.local.returning = true
	m.forget(s.remote)
	m.unlock()
	defer m.vacate()
	return s.release(ctx, lost)
}

// endSection ends a section that the last one has left, under mu, which it gives back for as long as contexts end.
// Meanwhile nobody enters. It returns the loss, also one by a bound that was reached a moment ago, and the time.
func (m *place) endSection(s *section, lost error, now clock.Instant) (error, clock.Instant) {
	end := lost
	if end == nil {
		end = m.released
	}
	over, ends := s.finish(end)
	if lost == nil && over != m.released {
		lost = s.asLost(over)
	}
	if len(ends) > 0 {
		m.in.Store(nil)
		m.local.returning = true
		m.unlock()
		ends.cancel(over)
		now = m.locker.engine.Now()
		m.mu.Lock()
		m.local.returning = false
	}
	return lost, now
}

// lockSection takes mu and returns the section that is in then, nil for none, and its loss. The loss is asked for
// first: one that is noticed there runs hooks. Under whoever is in the section stays the same; else it looks again. One
// that has begun since now is trusted.
func (m *place) lockSection(now clock.Instant) (*section, error) {
	for {
		s := m.in.Load()
		var lost error
		if s != nil && (s.bound != nil || !s.remote.lease.inner.Trusted(now)) {
			lost = s.lost()
		}
		m.mu.Lock()
		if m.in.Load() == s {
			return s, lost
		}
		m.unlock()
	}
}

// leaveOthers takes out, without the mutex, a reader who leaves others behind, if the lease stands: else it has to be
// told of the loss.
func (m *place) leaveOthers(now clock.Instant) bool {
	s := m.in.Load()
	return s != nil && s.bound == nil && s.remote.trusted(now) && m.local.readers.leave()
}

// handOn lets the next in under the remote hold, or keeps that for whoever comes, under mu. It reports whether it did.
// No command is sent, so between two goroutines of a process the lock goes on at memory speed.
func (m *place) handOn(h *remoteHold, now clock.Instant) bool {
	next := m.local.first
	if next == nil {
		return m.keep(h, now)
	}
	// A leader among the waiters is about to find out that it has nobody to join.
	if m.local.leader != nil || !h.serves(next.mode, now) {
		return false
	}
	m.in.Store(h.begin(m, next.mode))
	m.local.admitFirst()
	return true
}

// forget makes a remote hold that is to be given back none of this RWMutex, under mu. Nobody can enter under it from
// then on, so the release may follow at any time; how many tokens it has used tells how many the next one should have.
func (m *place) forget(h *remoteHold) {
	m.in.Store(nil)
	m.remote.Store(nil)
	m.linger.stop()
	m.block, m.seen = h.nextBlock(m.settings.Linger), max(m.seen, h.last)
}

// release gives the lease back and tells those of the section how it has ended. What Redis says is told to the last one
// who leaves, and to nobody else: the others have unlocked already.
func (s *section) release(ctx context.Context, lost error) error {
	if lost != nil {
		_ = s.reached() // who ends it at its limit may not have come to the lease yet
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

// vacate lets the next lead. It comes after the release has been answered or given up, so that the next request does
// not wait behind what this process has itself.
func (m *place) vacate() {
	m.mu.Lock()
	defer m.unlock()
	m.local.vacate()
	m.unused()
}

// want follows the news that another process waits for the hold of that id. The news may be old, of a hold that was
// given back or converted since; then it says nothing of what there is now.
func (m *place) want(h *remoteHold, id string) {
	now := m.locker.engine.Now()
	m.mu.Lock()
	if m.remote.Load() != h || h.id != id {
		m.unlock()
		return
	}
	h.want(now)
	m.unlock()
	m.stopLingering()
}

// leaseEnded follows the end of a lease, by a loss or by Close. Whoever is in stays in until it unlocks: to let another
// goroutine in beside it would break the exclusion that needs no Redis.
func (m *place) leaseEnded(h *remoteHold, err error) {
	m.mu.Lock()
	s := m.in.Load()
	if m.remote.Load() == h {
		m.linger.stop() // whoever is in keeps nothing of it
	}
	release := func() {}
	if m.kept() == h {
		release = m.drop(h)
	}
	m.unlock()
	release()
	if s != nil && s.remote == h {
		s.leaseEnded(err)
	}
}

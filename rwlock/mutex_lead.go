package rwlock

import (
	"context"
	"errors"

	"github.com/seed74116694/fencelock/internal/engine"
)

// errNotJoined is told to a leader that came while others read and could not join them.
var errNotJoined = errors.New("rwlock: readers not joined")

// lead gets the place for the leader and for those who enter with it: beside the readers that are in, or from Redis. On
// any error but errNotJoined the leader has left the queue.
func (m *RWMutex) lead(ctx context.Context, w *waiter, entry engine.Entry) error {
	m.mu.Lock()
	s, h := m.in.Load(), m.remote.Load()
	joins, alone := m.local.readers.number() > 0, m.local.empty() && !m.local.returning
	m.unlock()
	if !alone {
		if joins && m.extend(ctx, s) && m.beside(w, s) {
			return nil
		}
		return m.stepBack(w, entry)
	}
	defer m.leaveLeading(w) // also when a hook of the locker panics: nobody may wait for this leader for ever
	if h != nil && m.exchange(ctx, w, h) {
		return nil
	}
	hold, err := m.ask(ctx, w.mode, entry)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.remote.Store(hold)
	m.in.Store(hold.begin(m, w.mode))
	m.local.admitLeader(w)
	m.unlock()
	m.watch(hold)
	return nil
}

// exchange lets the leader in under a remote hold that nobody uses, if that serves it, or gives it back.
func (m *RWMutex) exchange(ctx context.Context, w *waiter, h *remoteHold) bool {
	trusted := h.lease.Err() == nil
	m.mu.Lock()
	if trusted && m.remote.Load() == h && h.serves(w.mode) {
		m.in.Store(h.begin(m, w.mode))
		m.local.admitLeader(w)
		m.unlock()
		return true
	}
	m.forget(h)
	m.unlock()
	_ = h.lease.Release(ctx) // nobody stood in it: that it was lost, or is not confirmed, concerns nobody
	return false
}

// extend gives the readers that are in the time that a new hold would have, and reports whether it did. Under
// WithoutRenewal that costs one command.
func (m *RWMutex) extend(ctx context.Context, s *section) bool {
	if s.remote.once && s.remote.lease.Renew(ctx) != nil {
		return false
	}
	return s.bound == 0 && s.lost() == nil || s.bound > 0 && s.extend()
}

// beside lets a reader in beside those of a section, if they are still there.
func (m *RWMutex) beside(w *waiter, s *section) bool {
	m.mu.Lock()
	defer m.unlock()
	if m.local.readers.number() == 0 || m.in.Load() != s || !s.remote.admitsMore() {
		return false
	}
	m.local.admitLeader(w)
	return true
}

func (m *RWMutex) stepBack(w *waiter, entry engine.Entry) error {
	if entry == engine.Wait {
		m.mu.Lock()
		defer m.unlock()
		m.local.stepBack(w)
	}
	return errNotJoined
}

// leaveLeading lets the next lead if this one has failed.
func (m *RWMutex) leaveLeading(w *waiter) {
	m.mu.Lock()
	defer m.unlock()
	if w.stage == leading {
		m.local.giveUp(w)
		m.unused()
	}
}

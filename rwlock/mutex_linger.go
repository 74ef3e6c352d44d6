package rwlock

import (
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
)

// linger is the time for which a process keeps a lock that it does not use, under WithLinger. Its timer runs on while
// the lock is acquired and released: to set it again each time would cost more than the rest. The RWMutex's mu guards
// it.
type linger struct {
	until time.Duration // the lock is released then if it is not in use; by the monotonic clock of Engine.Now
	timer *time.Timer   // made with the first use
	armed bool          // the timer runs, for until or for an earlier moment
}

// stop stops the timer, which keeps the RWMutex from being freed, because the process has nothing to keep. It is called
// under mu.
func (l *linger) stop() {
	if l.armed {
		l.armed = false
		l.timer.Stop()
	}
}

// keep leaves the remote hold with this process for a later goroutine, under mu. It reports whether it did: not while
// another process waits, and not if the hold cannot serve another reader.
func (m *place) keep(h *remoteHold, now clock.Instant) bool {
	d := m.settings.Linger
	if d <= 0 || h.wanted || !h.serves(Read, now) || m.local.leader != nil {
		return false
	}
	m.in.Store(nil)
	l := &m.linger
	l.until = now.Mono + d
	switch {
	case l.timer == nil:
		l.timer = time.AfterFunc(d, m.lingered)
	case !l.armed:
		l.timer.Reset(d)
	}
	l.armed = true
	return true
}

// kept returns the remote hold that this process has and does not use, or nil, under mu. A waiter or a leader uses the
// hold, or is about to.
func (m *place) kept() *remoteHold {
	if !m.local.idle() {
		return nil
	}
	return m.remote.Load()
}

// lingered releases the lock at the end of the time, or waits on if the lock was used since. While the lock is in use
// it sets no timer: the last holder to leave does, and the lock lingers for its time.
func (m *place) lingered() {
	m.mu.Lock()
	h, left := m.kept(), m.linger.until-m.locker.engine.Now().Mono
	if m.linger.armed = h != nil && left > 0; m.linger.armed {
		m.linger.timer.Reset(left)
		h = nil
	}
	release := m.drop(h)
	m.unlock()
	release()
}

// stopLingering releases a lock that this process keeps and does not use. It reports whether the RWMutex is not in use:
// its time may have ended at this moment too.
func (m *place) stopLingering() bool {
	m.mu.Lock()
	release := m.drop(m.kept())
	unused := m.local.idle()
	m.unlock()
	release()
	return unused
}

// drop forgets the hold that was kept, under mu; with nil it does nothing. The caller calls release after it has
// unlocked mu, and does not wait for Redis. The next request queues behind the hold on Redis. A single attempt, also
// through an RWMutex with other options, waits for the answer to the release. So the release is announced before that
// attempt can claim the name.
func (m *place) drop(h *remoteHold) (release func()) {
	if h == nil {
		return func() {}
	}
	m.forget(h)
	release = h.lease.inner.LetGo()
	m.unused()
	return release
}

// lingers reports whether this process keeps the lock and does not use it.
func (m *place) lingers() bool {
	m.mu.Lock()
	defer m.unlock()
	return m.kept() != nil
}

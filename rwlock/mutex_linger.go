package rwlock

import (
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
)

// linger is the time for which a process keeps a lock that nobody uses, under WithLinger. Its timer runs on while the
// lock is taken and given back: setting it anew each time would cost more than the rest. It is guarded by the RWMutex's
// mu.
type linger struct {
	until time.Duration // the lock is given back then, if nobody uses it; by the monotonic clock of Engine.Now
	timer *time.Timer   // made with the first use
	armed bool          // the timer runs, for until or for an earlier moment
}

// stop stops the timer, which keeps the RWMutex from being freed, under mu: the process has nothing to keep.
func (l *linger) stop() {
	if l.armed {
		l.armed = false
		l.timer.Stop()
	}
}

// keep leaves the remote hold with this process for whoever comes, under mu. It reports whether that may be: not where
// another process waits, nor where the hold can serve no reader any more.
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

// kept returns the remote hold that this process has and nobody uses, or nil, under mu. One who waits or leads uses it,
// or is about to.
func (m *place) kept() *remoteHold {
	if !m.local.idle() {
		return nil
	}
	return m.remote.Load()
}

// lingered gives the lock back at the end of the time, or waits on if it was used since. Where the lock is in use it
// sets no timer: the last to leave does, and the lock lingers for its time.
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

// stopLingering gives back a lock that nobody of this process uses. It reports whether the RWMutex is not in use: its
// time may have ended in this moment too.
func (m *place) stopLingering() bool {
	m.mu.Lock()
	release := m.drop(m.kept())
	unused := m.local.idle()
	m.unlock()
	release()
	return unused
}

// drop forgets what was kept, under mu; nil is nothing. The caller releases it when mu is given back, and does not wait
// for Redis. The next to ask is queued behind it; a single attempt waits for the answer, also in an RWMutex with other
// options. So the release is announced before that one can claim the name.
func (m *place) drop(h *remoteHold) (release func()) {
	if h == nil {
		return func() {}
	}
	m.forget(h)
	release = m.locker.engine.LetGo(&h.lease.inner)
	m.unused()
	return release
}

// lingers reports whether this process keeps the lock and does not use it.
func (m *place) lingers() bool {
	m.mu.Lock()
	defer m.unlock()
	return m.kept() != nil
}

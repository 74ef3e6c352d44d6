package rwlock

// Remote returns the hold of this process on Redis, nil for none, and whether its lease is trusted.
func (m *RWMutex) Remote() (hold any, trusted bool) {
	h := m.remote.Load()
	if h == nil {
		return nil, false
	}
	return h, h.trusted(m.locker.engine.Now())
}

// StopLingering stops the timer for the end of lingering, and reports whether it ran.
func (m *RWMutex) StopLingering() bool {
	m.mu.Lock()
	defer m.unlock()
	return m.linger.timer != nil && m.linger.timer.Stop()
}

// InUse reports whether an RWMutex with that name is in use.
func (l *Locker) InUse(name string) bool { return l.mutexes.used(name) != nil }

package rwlock

// Ends returns how many ends the RWMutex keeps for the contexts of those who are in.
func Ends(m *RWMutex) int { return m.current.Load().Len() }

// LeaseEnds returns how many ends a lease keeps for its contexts.
func LeaseEnds(l *Lease) int { return l.ownContexts().Len() }

// IsBusy reports whether somebody has the mutex of an RWMutex.
func IsBusy(m *RWMutex) bool {
	free := m.mu.TryLock()
	if free {
		m.mu.Unlock()
	}
	return !free
}

// ServesAfter calls end, which ends the lease of an RWMutex, and reports whether that serves one more before it hears.
func ServesAfter(m *RWMutex, end func()) bool {
	m.mu.Lock()
	defer m.unlock()
	h := m.remote.Load()
	go end()
	<-h.lease.Done()
	now := m.locker.engine.Now()
	return h.serves(Write, now) || h.serves(Read, now)
}

// LingerTimer reports whether a timer for the end of lingering runs.
func LingerTimer(m *RWMutex) bool {
	m.mu.Lock()
	defer m.unlock()
	return m.linger.timer != nil && m.linger.timer.Stop()
}

package engine

// The leases of an engine by hold id, from the first request on.

func (e *Engine) register(l *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.leases[l.hold] = l
	}
	return !e.closed
}

func (e *Engine) forget(hold string) {
	e.mu.Lock()
	delete(e.leases, hold)
	e.mu.Unlock()
}

func (e *Engine) lookup(hold string) *Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leases[hold]
}

func (e *Engine) snapshot() []*Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*Lease, 0, len(e.leases))
	for _, l := range e.leases {
		all = append(all, l)
	}
	return all
}

func (e *Engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

package engine

// Registered is what an engine keeps a note of.
type Registered struct{ Leases, Releases, WaitSets, Timers int }

// Registered counts the notes.
func (e *Engine) Registered() Registered {
	r := Registered{Releases: int(e.pending.n.Load()), Timers: e.timers.Len()}
	e.registry.mu.Lock()
	r.Leases = len(e.registry.holds)
	e.registry.mu.Unlock()
	for _, w := range e.waiters {
		w.mu.Lock()
		r.WaitSets += len(w.byName)
		w.mu.Unlock()
	}
	return r
}

// Held counts the leases that are held. It takes no mutex, so a clock may call it.
func (e *Engine) Held() int { return int(e.counters.held.Load()) }

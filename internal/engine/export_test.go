package engine

// Registered is what an engine keeps a note of.
type Registered struct{ Leases, Releases, WaitSets, Timers int }

// Registered counts the notes.
func (e *Engine) Registered() Registered {
	r := Registered{Releases: int(e.unconfirmed.n.Load()), Timers: e.timers.Len()}
	r.Leases = len(e.registry.snapshot())
	for _, w := range e.waiters {
		w.mu.Lock()
		r.WaitSets += len(w.byName)
		w.mu.Unlock()
	}
	return r
}

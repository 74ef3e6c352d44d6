package engine

import "time"

// Leaving has the releases of an engine on one master that no caller waits for.
type Leaving struct{ leaving }

// Add registers a release of the lock.
func (l *Leaving) Add(lock string) (left func()) { return l.add(lock) }

// After calls f after the releases of the lock that are registered now.
func (l *Leaving) After(lock string, f func()) { l.after(lock, f) }

// Any reports whether a release of the lock has no answer so far.
func (l *Leaving) Any(lock string) bool { return l.any(lock) }

// Registered is what an engine keeps a note of.
type Registered struct{ Leases, Releases, WaitSets, Timers int }

// Registered counts the notes.
func (e *Engine) Registered() Registered {
	r := Registered{Releases: int(e.underWay.n.Load()), Timers: e.timers.Len()}
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

// AddBesideRepeat adds a release for the lock on the first master, by a goroutine that found the queue of its node just
// before other servers answered and the queue was replaced. It reports whether that queue waited for a probe.
func (e *Engine) AddBesideRepeat(name, hold string, ttl time.Duration) (waited bool) {
	p, key := e.releases[0], e.keys.Of(name)
	q := p.queue(key)
	waited = q.failures > 0 && q.underWay == 0
	p.repeat()
	r := &release{of: p, key: key, hold: hold, until: e.clock.Now().Add(ttl)}
	r.announce()
	q.add(r)
	return waited
}

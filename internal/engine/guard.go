package engine

import "sync"

// guard is the mutex of a lease. What must not run under it, such as the end of a context or a call to another part, is
// put off until it is given back.
type guard struct {
	mu       sync.Mutex
	deferred []func()
}

// Lock is not re-entrant. What is called under it says so: "under mu".
func (g *guard) Lock() { g.mu.Lock() }

// Unlock gives the mutex back and then runs what was put off.
func (g *guard) Unlock() {
	deferred := g.deferred
	g.deferred = nil
	g.mu.Unlock()
	for _, f := range deferred {
		f()
	}
}

// afterUnlock puts f off until the mutex is given back.
func (g *guard) afterUnlock(f func()) { g.deferred = append(g.deferred, f) }

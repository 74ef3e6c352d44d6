package engine

import "sync"

// guard is the mutex of a lease. What must not run under it, such as the end of a context or a call to another part, is
// put off until it is given back.
type guard struct {
	mu       sync.Mutex
	deferred *deferred // in the order in which they were put off
}

// deferred is one call that was put off. A list takes 16 bytes less of every lease than a slice, and is seldom long.
type deferred struct {
	run  func()
	next *deferred
}

// Lock is not re-entrant. What is called under it says so: "under mu".
func (g *guard) Lock() { g.mu.Lock() }

// Unlock gives the mutex back and then runs what was put off. Between the two another goroutine may take the mutex, so
// what is put off must not rely on the state in which it was put off: it carries what it needs.
func (g *guard) Unlock() {
	first := g.deferred
	g.deferred = nil
	g.mu.Unlock()
	first.runAll()
}

// unlockBoth gives two mutexes back, and then runs what was put off under either.
func unlockBoth(g, other *guard) {
	first, second := g.deferred, other.deferred
	g.deferred, other.deferred = nil, nil
	g.mu.Unlock()
	other.mu.Unlock()
	first.runAll()
	second.runAll()
}

// runAll runs the calls from this one on.
func (d *deferred) runAll() {
	for ; d != nil; d = d.next {
		d.run()
	}
}

// afterUnlock puts f off until the mutex is given back.
func (g *guard) afterUnlock(f func()) {
	last := &g.deferred
	for *last != nil {
		last = &(*last).next
	}
	*last = &deferred{run: f}
}

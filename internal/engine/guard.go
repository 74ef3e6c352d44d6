package engine

import "sync"

// guard is the mutex of a lease. A call that must not run under it, such as the end of a context or a call to another
// part, is deferred until it is unlocked.
type guard struct {
	mu       sync.Mutex
	deferred *deferred // in the order of deferral
}

// deferred is one deferred call. A list takes 16 bytes less of every lease than a slice, and is seldom long.
type deferred struct {
	run  func()
	next *deferred
}

// Lock is not re-entrant. The comments of functions that are called under it say "under mu".
func (g *guard) Lock() { g.mu.Lock() }

// Unlock unlocks the mutex and then runs the deferred calls. Another goroutine may take the mutex between the two, so a
// deferred call must not rely on the state at its deferral: it carries what it needs.
func (g *guard) Unlock() {
	first := g.deferred
	g.deferred = nil
	g.mu.Unlock()
	first.runAll()
}

// unlockBoth unlocks two mutexes, and then runs what was deferred under either.
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

// afterUnlock defers f until the mutex is unlocked.
func (g *guard) afterUnlock(f func()) {
	last := &g.deferred
	for *last != nil {
		last = &(*last).next
	}
	*last = &deferred{run: f}
}

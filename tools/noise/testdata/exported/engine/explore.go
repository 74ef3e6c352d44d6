package engine

// Guard is the mutex of a lease.
type Guard = guard

// AfterUnlock is afterUnlock.
func (g *guard) AfterUnlock(f func()) { g.afterUnlock(f) }

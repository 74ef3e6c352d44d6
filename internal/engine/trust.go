package engine

import (
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
)

// trust is a lease's deadline. It is written under the lease's mutex and read with or without it. The two clocks are
// stored one after the other. A deadline only moves forward, so a reader without the mutex that sees only the first
// store trusts the lease no longer than before.
type trust struct{ mono, wall atomic.Int64 } // ns; 0 if the lease does not stand

// until returns the deadline.
func (t *trust) until() clock.Instant {
	return clock.Instant{Mono: time.Duration(t.mono.Load()), Wall: time.Duration(t.wall.Load())}
}

func (t *trust) set(until clock.Instant) {
	t.mono.Store(int64(until.Mono))
	t.wall.Store(int64(until.Wall))
}

// left returns how much longer the lease is trusted.
func (t *trust) left(now clock.Instant) time.Duration { return t.until().Mono - now.Mono }

func (t *trust) end() {
	t.mono.Store(0)
	t.wall.Store(0)
}

// Trusted reports whether the lease stands at an instant of Engine.Now, as Err does, except that it ignores MaxHold. It
// does not block and changes nothing, because the goroutines of a shared hold call it for each entry. The caller passes
// the instant, because reading the clocks is most of the cost.
func (l *Lease) Trusted(now clock.Instant) bool {
	for {
		l = l.current()
		if !l.trust.until().Passed(now) {
			return true
		}
		if l.successor.Load() == nil { // else a conversion has just ended this lease
			return false
		}
	}
}

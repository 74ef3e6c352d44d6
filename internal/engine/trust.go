package engine

import (
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
)

// trust is a lease's deadline. It is written under the lease's mutex and read with or without it. The two clocks are
// stored one after the other; since a deadline only moves on, whoever reads between them without the mutex finds the
// lease trusted by one clock for no longer than it was.
type trust struct{ mono, wall atomic.Int64 } // ns; 0 where the lease does not stand

// until returns the deadline.
func (t *trust) until() clock.Instant {
	return clock.Instant{Mono: time.Duration(t.mono.Load()), Wall: time.Duration(t.wall.Load())}
}

func (t *trust) set(until clock.Instant) {
	t.mono.Store(int64(until.Mono))
	t.wall.Store(int64(until.Wall))
}

// left is how much longer the lease is trusted.
func (t *trust) left(now clock.Instant) time.Duration { return t.until().Mono - now.Mono }

func (t *trust) end() {
	t.mono.Store(0)
	t.wall.Store(0)
}

// Trusted reports whether the lease stands at a moment of Engine.Now, as Err does, but for MaxHold. It waits for nobody
// and changes nothing: the goroutines of a process that share a hold ask it each time that one of them enters. The
// moment is the caller's, since reading the clocks is most of what it costs.
func (l *Lease) Trusted(now clock.Instant) bool {
	for {
		l = l.current()
		if !l.trust.until().Passed(now) {
			return true
		}
		if l.successor.Load() == nil { // else a conversion has ended this one meanwhile
			return false
		}
	}
}

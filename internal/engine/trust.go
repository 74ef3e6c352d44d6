package engine

import (
	"sync/atomic"

	"github.com/seed74116694/fencelock/internal/clock"
)

// trust is a lease's deadline for those who ask without its mutex. The two clocks are stored one after the other; since
// a deadline only moves on, who reads between them finds the lease trusted by one clock for no longer than it was.
type trust struct{ mono, wall atomic.Int64 } // ns; 0 where the lease does not stand

func (t *trust) set(until clock.Instant) {
	t.mono.Store(int64(until.Mono))
	t.wall.Store(until.Wall.UnixNano())
}

func (t *trust) end() {
	t.mono.Store(0)
	t.wall.Store(0)
}

// Trusted reports whether the lease stands, as Err does, but for MaxHold. It waits for nobody and changes nothing.
func (l *Lease) Trusted() bool {
	l = l.current()
	now := l.e.clock.Now()
	return int64(now.Mono) < l.trust.mono.Load() && now.Wall.UnixNano() < l.trust.wall.Load()
}

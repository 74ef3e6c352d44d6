package testkit

import (
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/rwlock"
)

// WallClock is the clock of a machine: its wall clock can be set, and both of its clocks run at a rate.
type WallClock struct {
	start time.Time
	rate  float64
	mu    sync.Mutex
	ahead time.Duration
}

// NewWallClock returns a clock that is so much ahead of the server's.
func NewWallClock(ahead time.Duration) *WallClock { return NewDriftingClock(ahead, 1) }

// NewDriftingClock returns a clock that is so much ahead of the server's and runs at that rate.
func NewDriftingClock(ahead time.Duration, rate float64) *WallClock {
	return &WallClock{start: time.Now(), rate: rate, ahead: ahead}
}

// Step sets the wall clock forward, or back.
func (c *WallClock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// Option gives a process this clock.
func (c *WallClock) Option() rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) {
		l.Clock = func() (time.Duration, time.Time) {
			c.mu.Lock()
			defer c.mu.Unlock()
			passed := time.Duration(float64(time.Since(c.start)) * c.rate)
			return passed, c.start.Add(c.ahead + passed)
		}
	})
}

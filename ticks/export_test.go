package ticks

import "time"

// SetClock gives a process another clock.
func (t *Ticks) SetClock(clock func() time.Time) { t.clock = clock }

package engine

import "time"

// Clock reads the two clocks of this machine: one that only runs forward but may stand still while the machine is
// suspended, and the wall clock, which goes on but may be set.
type Clock func() (monotonic time.Duration, wall time.Time)

// SystemClock is the Clock of the running process.
func SystemClock() Clock {
	start := time.Now()
	return func() (time.Duration, time.Time) {
		now := time.Now()
		return now.Sub(start), now
	}
}

// instant is one reading of both clocks.
type instant struct {
	mono time.Duration
	wall time.Time
}

func (c Clock) now() instant {
	mono, wall := c()
	return instant{mono, wall.Round(0)}
}

func (i instant) add(d time.Duration) instant {
	return instant{i.mono + d, i.wall.Add(d)}
}

// passed reports whether either clock has reached the deadline: the wall clock ends a lease that slept through a
// suspension, the monotonic clock one whose wall clock was set back.
func (i instant) passed(now instant) bool {
	return now.mono >= i.mono || !now.wall.Before(i.wall)
}

// drift is how much of a lease is not trusted: the rates of two clocks differ, and milliseconds are rounded.
type drift float64

const rounding = 2 * time.Millisecond

// trusted is the one place where a deadline is computed. The server counted left from some moment after sent, so its
// own expiry comes later than sent + left however long request and reply were on their way.
func (d drift) trusted(sent instant, left time.Duration) instant {
	return sent.add(left - time.Duration(float64(left)*float64(d)) - rounding)
}

// Package clock reads the two clocks of this machine and computes how long a lease may be trusted by them.
package clock

import "time"

// Clock reads both clocks: a monotonic one that may stand still while the machine is suspended, and the wall clock,
// which goes on but may be set.
type Clock func() (monotonic time.Duration, wall time.Time)

// System is the Clock of the running process.
func System() Clock {
	start := time.Now()
	return func() (time.Duration, time.Time) {
		now := time.Now()
		return now.Sub(start), now
	}
}

// Now is one reading of both clocks.
func (c Clock) Now() Instant {
	monotonic, wall := c()
	return Instant{monotonic, SinceEpoch(wall)}
}

// SinceEpoch is a time of the wall clock as an Instant keeps it.
func SinceEpoch(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }

// Never is a monotonic time that is not reached.
const Never = time.Duration(1<<63 - 1)

// Instant is a moment by both clocks. A lease keeps several, so the wall clock's part is a number: a time.Time takes
// three times the memory, for a time zone and a second monotonic reading that nothing here may use.
type Instant struct {
	Mono time.Duration // since the clock was made
	Wall time.Duration // since 1970, UTC
}

// Add moves both clocks.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.Mono + d, i.Wall + d} }

// Passed reports whether either clock has reached the moment: the wall clock ends a lease that slept through a
// suspension, the monotonic clock one whose wall clock was set back.
func (i Instant) Passed(now Instant) bool { return now.Mono >= i.Mono || now.Wall >= i.Wall }

// AtMostSince returns the most that has gone by since an earlier moment: the larger of what the two clocks say.
func (i Instant) AtMostSince(earlier Instant) time.Duration {
	return max(i.Mono-earlier.Mono, i.Wall-earlier.Wall)
}

// Drift is how far the rates of two machines' clocks may differ, as a part of the time that passes.
type Drift float64

// Rounding is subtracted from every lease, since servers count whole milliseconds.
const Rounding = 2 * time.Millisecond

// Trusted is the one place where a deadline is computed. The server counted ttl from some moment after sent, so its
// own expiry comes later than sent + ttl, however long request and reply were on their way.
func (d Drift) Trusted(sent Instant, ttl time.Duration) Instant {
	return sent.Add(ttl - time.Duration(float64(ttl)*float64(d)) - Rounding)
}

// Stretch returns how much a server's clock may have run while at most this much went by here.
func (d Drift) Stretch(elapsed time.Duration) time.Duration {
	return time.Duration(float64(elapsed) * (1 + float64(d)))
}

// Package clock reads the two clocks of this machine and computes how long a lease may be trusted by them.
package clock

import "time"

// Clock reads both clocks: the monotonic clock, which may stand still while the machine is suspended, and the wall
// clock, which continues but may be set.
type Clock func() (monotonic time.Duration, wall time.Time)

// System is the Clock of the running process.
func System() Clock {
	start := time.Now()
	return func() (time.Duration, time.Time) {
		now := time.Now()
		return now.Sub(start), now
	}
}

// Now returns one reading of both clocks.
func (c Clock) Now() Instant {
	monotonic, wall := c()
	return Instant{monotonic, time.Duration(wall.UnixNano())}
}

// Never is a monotonic time that is never reached.
const Never = time.Duration(1<<63 - 1)

// Instant is a moment on both clocks. A lease keeps several Instants, so the wall clock's part is a number: a time.Time
// takes three times the memory, for a time zone and a second monotonic reading that nothing here may use.
type Instant struct {
	Mono time.Duration // since the clock was made
	Wall time.Duration // since 1970, UTC
}

// Add moves the moment by d on both clocks.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.Mono + d, i.Wall + d} }

// Passed reports whether either clock has reached the moment. The wall clock ends a lease that lasted through a
// suspension. The monotonic clock ends a lease when the wall clock was set back.
func (i Instant) Passed(now Instant) bool { return now.Mono >= i.Mono || now.Wall >= i.Wall }

// AtMostSince returns the most time that can have passed since an earlier moment: the larger of the two clocks'
// readings.
func (i Instant) AtMostSince(earlier Instant) time.Duration {
	return max(i.Mono-earlier.Mono, i.Wall-earlier.Wall)
}

// Drift is how far the rates of two machines' clocks may differ, as a fraction of the elapsed time.
type Drift float64

// Rounding is subtracted from every lease, because servers count whole milliseconds.
const Rounding = 2 * time.Millisecond

// Trusted returns until when a lease with this ttl is trusted. It is the only place that computes how long an answer is
// trusted. The server counted ttl from a moment after sent, so its own expiry comes later than sent + ttl, however long
// request and reply were in transit. A request that the server refused because it did not know the script does not
// count: sent is when the script itself was sent.
func (d Drift) Trusted(sent Instant, ttl time.Duration) Instant {
	return sent.Add(ttl - time.Duration(float64(ttl)*float64(d)) - Rounding)
}

// Stretch returns how far a server's clock may have advanced while at most this much time passed here.
func (d Drift) Stretch(elapsed time.Duration) time.Duration {
	return time.Duration(float64(elapsed) * (1 + float64(d)))
}

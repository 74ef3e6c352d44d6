package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/clock"
)

func TestTrustEndsBeforeTheServersExpiry(t *testing.T) {
	const drift, rounding = 0.01, 2 * time.Millisecond
	for _, c := range []struct {
		drift          float64
		left, deadline time.Duration
	}{
		{drift, 10 * time.Second, 9900*time.Millisecond - rounding},
		{drift, 100 * time.Millisecond, 99*time.Millisecond - rounding},
		{drift, 24 * time.Hour, 24*time.Hour - 864*time.Second - rounding},
		{drift, time.Millisecond, 990*time.Microsecond - rounding}, // over before it began
		{drift, 0, -rounding},
		{0, 10 * time.Second, 10*time.Second - rounding},
		{0.25, 10 * time.Second, 7500*time.Millisecond - rounding},
	} {
		monotonic, wall := trusted(c.drift, c.left)
		require.Equal(t, c.deadline, monotonic, "%v left, drift %v", c.left, c.drift)
		require.Equal(t, monotonic, wall, "by both clocks")
	}
}

// The server's clock may run faster than ours by the drift; it counts whole milliseconds, and its TTL has begun at some
// time after the request was sent. Its expiry comes later in any case.
func FuzzTrustEndsBeforeTheServersExpiry(f *testing.F) {
	f.Add(int64(10*time.Second), 0.01, int64(0))
	f.Add(int64(100*time.Millisecond), 0.01, int64(time.Millisecond))
	f.Add(int64(24*time.Hour), 0.49, int64(time.Second))
	f.Add(int64(time.Millisecond), 0.0, int64(0))
	f.Fuzz(func(t *testing.T, left int64, drift float64, travel int64) {
		if left < 0 || left > int64(24*time.Hour) || !(drift >= 0 && drift < 0.5) || travel < 0 || travel > int64(time.Hour) {
			t.Skip("not settings that are allowed")
		}
		deadline, _ := trusted(drift, time.Duration(left))
		served := time.Duration(float64(left)/(1+drift)) - time.Millisecond // by our clock, cut to a millisecond
		require.Less(t, deadline, time.Duration(travel)+served)
	})
}

func TestEitherClockEndsTheTrust(t *testing.T) {
	const deadline, before, after = time.Minute, time.Minute - 1, time.Minute
	for _, c := range []struct {
		name            string
		monotonic, wall time.Duration
		passed          bool
	}{
		{"neither is there", before, before, false},
		{"both are there", after, after, true},
		{"a suspended machine: its monotonic clock stood still", 0, after, true},
		{"a wall clock that was set back", after, -time.Hour, true},
		{"a wall clock that was set back, in time", before, -time.Hour, false},
	} {
		require.Equal(t, c.passed, passed(deadline, c.monotonic, c.wall), c.name)
	}
}

func TestSystemClockRunsForward(t *testing.T) {
	read := clock.System()
	last, _ := read()
	for range 1000 {
		monotonic, wall := read()
		require.GreaterOrEqual(t, monotonic, last)
		require.WithinDuration(t, time.Now(), wall, time.Minute)
		last = monotonic
	}
}

// trusted computes the deadline of a lease that was asked for at the origin of both clocks.
func trusted(factor float64, left time.Duration) (monotonic, wall time.Duration) {
	origin := clock.Instant{Wall: 1_000_000_000 * time.Second}
	i := clock.Drift(factor).Trusted(origin, left)
	return i.Mono, i.Wall - origin.Wall
}

// passed reports whether a deadline has passed at a moment; both are of both clocks, from one origin.
func passed(deadline, monotonic, wall time.Duration) bool {
	const origin = 1_000_000_000 * time.Second
	i := clock.Instant{Mono: deadline, Wall: origin + deadline}
	return i.Passed(clock.Instant{Mono: monotonic, Wall: origin + wall})
}

func TestElapsedByTheFurtherClock(t *testing.T) {
	start := clock.Instant{Mono: time.Hour, Wall: 1_000_000_000 * time.Second}
	for _, c := range []struct {
		name                  string
		monotonic, wall, most time.Duration
	}{
		{"both run", time.Second, time.Second, time.Second},
		{"a suspended machine", 0, time.Minute, time.Minute},
		{"a wall clock that was set back", time.Second, -time.Hour, time.Second},
	} {
		now := clock.Instant{Mono: start.Mono + c.monotonic, Wall: start.Wall + c.wall}
		require.Equal(t, c.most, now.AtMostSince(start), c.name)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

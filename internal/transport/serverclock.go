package transport

import (
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
)

// serverClock bounds the time that a server's clock can show, from the last answer that contained the server's time.
type serverClock struct {
	drift clock.Drift

	mu      sync.Mutex
	since   time.Duration // another server may have answered requests sent before this
	sent    clock.Instant // just before the request that returned micros was sent
	micros  int64         // 0 if unknown
	suspect bool          // a later request was not answered
}

func (s *serverClock) sample(sent clock.Instant, micros int64) {
	s.mu.Lock()
	if micros > 0 && sent.Mono >= s.sent.Mono && sent.Mono >= s.since {
		s.sent, s.micros, s.suspect = sent, micros, false
	}
	s.mu.Unlock()
}

// forget drops the sample, and ignores samples from requests that were sent before that time, because another server
// may have answered them.
func (s *serverClock) forget(since time.Duration) {
	s.mu.Lock()
	s.micros, s.since = 0, max(s.since, since)
	s.mu.Unlock()
}

func (s *serverClock) doubt() {
	s.mu.Lock()
	s.suspect = true
	s.mu.Unlock()
}

// answeredWithin reports whether the same server answered a request of at most this age, and no request has failed
// since.
func (s *serverClock) answeredWithin(age time.Duration, now clock.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.suspect && s.micros != 0 && now.AtMostSince(s.sent) < age
}

// answeredSince reports whether a request that was sent after that time has been answered.
func (s *serverClock) answeredSince(t time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent.Mono > t
}

// estimate returns the time that the server's clock shows when a request that is sent now reaches it. It assumes that
// the request takes as long as the request of the sample, at whose arrival the clock showed micros. Unlike upperBound
// it is an estimate, and too small after this machine was suspended.
func (s *serverClock) estimate(now clock.Instant) (micros int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.micros + max(now.Mono-s.sent.Mono, 0).Microseconds(), s.micros != 0
}

// upperBound returns the largest time that the server's clock can show now. The clock showed at most micros when the
// request was sent. Since then it has run at most drift faster than whichever clock of this machine advanced further:
// the monotonic clock stands still in a suspended machine, and the wall clock may be set. For a moment before that
// request, micros is the bound.
func (s *serverClock) upperBound(now clock.Instant) (micros int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.micros == 0 {
		return 0, false
	}
	return s.micros + s.drift.Stretch(max(now.AtMostSince(s.sent), 0)).Microseconds() + 1, true
}

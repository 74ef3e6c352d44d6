package transport

import (
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
)

// serverClock bounds what a server's clock can show, from the last answer that told its time.
type serverClock struct {
	drift clock.Drift

	mu      sync.Mutex
	since   time.Duration // what was sent before may have been answered by another server
	sent    clock.Instant // just before the request that brought micros was sent
	micros  int64         // 0 is unknown
	suspect bool          // a later request was not answered
}

func (s *serverClock) sample(sent clock.Instant, micros int64) {
	s.mu.Lock()
	if micros > 0 && sent.Mono >= s.sent.Mono && sent.Mono >= s.since {
		s.sent, s.micros, s.suspect = sent, micros, false
	}
	s.mu.Unlock()
}

// forget drops the sample, and those that answers to requests from before that time will bring: another server may
// have answered.
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

// answeredWithin reports whether a request of at most this age was answered by the same server, and none has failed
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

// about returns what the server's clock shows when a request that is sent now reaches it, if that takes as long as the
// one of the sample took: then it showed micros. It is an estimate, unlike atMost, and too little after this machine
// was suspended.
func (s *serverClock) about(now clock.Instant) (micros int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.micros + max(now.Mono-s.sent.Mono, 0).Microseconds(), s.micros != 0
}

// atMost returns the most that the server's clock can show now. It showed at most micros when the request was sent, and
// has run at most drift faster than ours since, by whichever of our clocks ran further: one stands still in a suspended
// machine, the other may be set. A moment before that request is no later than it.
func (s *serverClock) atMost(now clock.Instant) (micros int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.micros == 0 {
		return 0, false
	}
	return s.micros + s.drift.Stretch(max(now.AtMostSince(s.sent), 0)).Microseconds() + 1, true
}

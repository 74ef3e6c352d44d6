package main

import "sync"

// breach is a kind of violation.
type breach int

const (
	exclusion  breach = iota // two leases at once, one of them a writer's
	tokenOrder               // a token that does not exceed an earlier one
	storage                  // a late write accepted, a trusted one refused, an update lost
	breaches
)

func (b breach) String() string { return [...]string{"exclusion", "token order", "storage"}[b] }

const maxDetails = 20

// scoreboard counts the exceptional events. It is safe for concurrent use.
type scoreboard struct {
	mu         sync.Mutex
	violations [breaches]uint64
	details    []string // of the first few
	stalls     uint64   // leases lost on purpose
	lateWrites uint64   // attempted by stalled holders
	refused    uint64   // stale accesses, late writes among them
	failures   uint64   // acquisitions and releases
	failure    error    // the first
}

func (s *scoreboard) violated(kind breach, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations[kind]++
	if len(s.details) < maxDetails {
		s.details = append(s.details, kind.String()+": "+detail)
	}
}

func (s *scoreboard) refusedStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused++
}

func (s *scoreboard) stalled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalls++
}

func (s *scoreboard) wroteLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lateWrites++
}

func (s *scoreboard) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	if s.failure == nil {
		s.failure = err
	}
}

// counts are the numbers that the progress line shows.
func (s *scoreboard) counts() (refused, violations uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.violations {
		violations += n
	}
	return s.refused, violations
}

package sqltest_test

import (
	"sync"

	"github.com/seed74116694/fencelock/fencing"
)

// maxStalled leaves most lockers awake, so that a stalled one is overtaken.
const maxStalled = 3

// stalls puts holders to sleep until their lease has ended and another holder has
// been at work: by events, so that it is so for sure.
type stalls struct {
	mu      sync.Mutex
	changed sync.Cond                // claimed or closing
	claimed map[string]fencing.Token // the newest that has been at the store
	stalled int
	closing bool // whoever sleeps wakes up, and nobody falls asleep any more
}

func newStalls() *stalls {
	s := &stalls{claimed: map[string]fencing.Token{}}
	s.changed.L = &s.mu
	return s
}

// atWork notes that a holder has claimed at the store.
func (s *stalls) atWork(f fencing.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed[f.Resource] = max(s.claimed[f.Resource], f.Token)
	s.changed.Broadcast()
}

// stalling is how a holder wakes up.
type stalling int

const (
	awake     stalling = iota // it was not stalled after all: too many are, or the run is ending
	ended                     // the lease has ended, and nobody else has been at work yet
	overtaken                 // the lease has ended, and a newer holder has claimed
)

// stall calls end, which ends the lease unless it does so by itself, and returns
// when a newer holder has claimed.
func (s *stalls) stall(f fencing.Fence, end func()) stalling {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.stalled == maxStalled {
		return awake
	}
	end()
	s.stalled++
	for s.claimed[f.Resource] <= f.Token && !s.closing {
		s.changed.Wait()
	}
	s.stalled--
	if s.claimed[f.Resource] > f.Token {
		return overtaken
	}
	return ended
}

// close is for when a locker has finished: it overtakes nobody any more.
func (s *stalls) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.changed.Broadcast()
}

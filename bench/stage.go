package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// stage is the state that all clients share and that no lock library knows: the data, and the checkers.
type stage struct {
	names   []string
	store   *store
	checker *checker
	score   *scoreboard
	picture *timeline
}

func newStage(names int, picture *timeline) *stage {
	s := &stage{score: new(scoreboard), picture: picture}
	for i := 1; i <= names; i++ {
		s.names = append(s.names, fmt.Sprintf("account/%d", i))
	}
	s.store = newStore(s.names, picture)
	s.checker = newChecker(s.score)
	return s
}

// occupy runs work as the critical section of a lease, watched from entering to leaving.
func (s *stage) occupy(client int, lease *rwlock.Lease, before fencing.Token, work func()) {
	s.checker.enter(lease, before)
	entered := time.Now()
	work()
	s.checker.leave(lease)
	s.picture.add(client, lease, entered, time.Now())
}

// use reads the counter or adds one to it. A section takes a while, so that the other workers come to wait.
func (s *stage) use(ctx context.Context, lease *rwlock.Lease) {
	ctx = lease.Context(ctx)
	read, err := s.store.load(ctx, lease.Fence())
	if s.accessed(lease, err); err != nil {
		return
	}
	pause(ctx, time.Millisecond+rand.N(4*time.Millisecond))
	if lease.Mode() == rwlock.Write {
		err = s.store.increment(ctx, lease.Fence(), read)
	} else {
		_, err = s.store.load(ctx, lease.Fence())
	}
	s.accessed(lease, err)
}

// accessed judges the storage's answer. If the access is refused and the lease, asked after the refusal, is still held,
// then a newer access intervened during the hold, which is a violation.
func (s *stage) accessed(lease *rwlock.Lease, err error) {
	switch {
	case err == nil:
	case errors.Is(err, fencing.ErrStale):
		s.score.refusedStale()
		if lease.Err() == nil {
			s.score.violated(storage, fmt.Sprintf("a holder that is trusted was refused: %v", err))
		}
	case lease.Err() == nil:
		s.score.failed(err)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

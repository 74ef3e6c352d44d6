package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

const (
	stallTTL   = 500 * time.Millisecond
	stallLead  = 200 * time.Millisecond // ordinary work before each stall, for the picture too
	oversleep  = 80 * time.Millisecond  // how long a stalled holder sleeps on after its successors have entered
	stallRound = stallLead + stallTTL + 2*oversleep
)

// staller is the holder that a lease has to guard against: it takes a lock, stops past its lease, and continues as if
// nothing had happened.
type staller struct {
	*stage
	holder *client
	next   *client // makes sure that another holder enters after the stalled one
	tried  bool    // a late write
}

// play stalls repeatedly until the time is over, but even in a short run not before one late write was tried. ctx ends
// it at once: the user interrupts, or the servers are gone.
func (s *staller) play(ctx context.Context, until time.Time) {
	for round := 0; s.mayBegin(until); round++ {
		fault := pausedProcess
		if round%2 == 1 {
			fault = cutLink
		}
		err := s.playRound(ctx, s.names[round%len(s.names)], fault, until)
		if ctx.Err() != nil || s.tried && !time.Now().Before(until) {
			return // the end of the run cut the round short, which is not a failure
		}
		if err != nil {
			s.score.failed(fmt.Errorf("stalled holder: %w", err))
		}
	}
}

// grace bounds the wait for the first late write after the working time. It is for a run that cannot get there at all,
// not a measure of the machine's speed: on an idle machine the write takes a second.
const grace = time.Minute

func (s *staller) mayBegin(until time.Time) bool {
	left := time.Until(until)
	return left > stallRound || !s.tried && left > -grace
}

func (s *staller) playRound(ctx context.Context, name string, how fault, until time.Time) error {
	last := until
	if !s.tried {
		last = until.Add(grace)
	}
	ctx, cancel := context.WithDeadline(ctx, last)
	defer cancel()
	pause(ctx, stallLead)
	return s.round(ctx, name, how)
}

// fault is the way in which a holder loses its lease.
type fault int

const (
	pausedProcess fault = iota // nothing in the process runs, so nothing is renewed
	cutLink                    // renewals run and reach no master
)

// round is one stall, from the lock to the late write. The storage must have seen a newer holder by then: otherwise it
// would be right to accept the write.
func (s *staller) round(ctx context.Context, name string, how fault) error {
	opts := []rwlock.LockOption{rwlock.WithTTL(stallTTL)}
	if how == pausedProcess {
		opts = append(opts, rwlock.WithoutRenewal())
	}
	before := s.checker.newest(name, rwlock.Write)
	lease, err := s.holder.locker.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	fence := lease.Fence()
	var read reading
	entered := time.Now()
	s.occupy(s.holder.id, lease, before, func() {
		read, err = s.store.load(ctx, fence)
		if s.accessed(lease, err); how == cutLink {
			s.holder.link.sever()
		}
		select {
		case <-lease.Done():
		case <-ctx.Done():
		}
	})
	defer s.holder.link.mend()
	lost := time.Now()
	if errors.Is(lease.Err(), rwlock.ErrLost) {
		s.score.stalled() // counted first, because the end of the run may cut off the rest
	}
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err(), notLost(lease.Release(ctx)))
	}
	for s.seen(name) <= fence.Token {
		if err := s.succeed(ctx, name, func() {}); err != nil {
			return err
		}
	}
	pause(ctx, oversleep)
	return s.succeed(ctx, name, func() {
		s.writeLate(fence, read, stall{client: s.holder.id, fence: fence, began: entered, lost: lost})
	})
}

// seen is the greatest token of a name that the storage has seen.
func (s *staller) seen(name string) fencing.Token {
	read, written := s.store.guard.Seen(name)
	return max(read, written)
}

// succeed is the next holder: it queues like any other waiter, reads and writes. The function then runs
// while it still has the lock, so that no section of another client overwrites what a late write leaves behind.
func (s *staller) succeed(ctx context.Context, name string, then func()) error {
	before := s.checker.newest(name, rwlock.Write)
	lease, err := s.next.locker.Lock(ctx, name)
	if err != nil {
		return err
	}
	s.occupy(s.next.id, lease, before, func() {
		s.use(ctx, lease)
		then()
	})
	return notLost(lease.Release(ctx))
}

// writeLate is the write of a holder after its stall. Only the token in its fence can stop it.
func (s *staller) writeLate(f fencing.Fence, read reading, story stall) {
	story.late, s.tried = time.Now(), true
	s.score.wroteLate()
	err := s.store.increment(context.Background(), f, read)
	stale, refused := errors.AsType[*fencing.StaleError](err)
	if !refused {
		s.score.violated(storage, fmt.Sprintf("%q: the late write with token %v was accepted (%v)", f.Resource, f.Token, err))
		return
	}
	s.score.refusedStale()
	story.seen, story.wrote = stale.Seen, read.bare+1
	s.picture.tell(story)
}

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
	oversleep  = 80 * time.Millisecond  // how long a stalled holder sleeps on once others are in
	stallRound = stallLead + stallTTL + 2*oversleep
)

// staller plays the holder that every lease is afraid of: it takes a lock, stands still past its lease, and goes on as
// if nothing had happened.
type staller struct {
	*stage
	holder *client
	next   *client // makes sure that somebody gets in after the holder
	tried  bool    // a late write
}

// play stalls again and again until the time is over, but not before one late write was tried, however short the run
// is. ctx ends it at once: somebody interrupts, or the servers are gone.
func (s *staller) play(ctx context.Context, until time.Time) {
	for round := 0; s.mayBegin(until); round++ {
		fault := pausedProcess
		if round%2 == 1 {
			fault = cutLink
		}
		err := s.playRound(ctx, s.names[round%len(s.names)], fault, until)
		if ctx.Err() != nil || s.tried && !time.Now().Before(until) {
			return // a round that was cut short by the end is no failure
		}
		if err != nil {
			s.score.failed(fmt.Errorf("stalled holder: %w", err))
		}
	}
}

// grace bounds how long the first late write is waited for after the working time. It is for a run that cannot get
// there at all, and no measure of the machine's speed: on an idle one the write takes a second.
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

// fault is how a holder comes to lose its lease.
type fault int

const (
	pausedProcess fault = iota // nothing in the process runs, so nothing is renewed
	cutLink                    // renewals run and reach nobody
)

// round is one stall, from the lock to the late write. The storage must have seen somebody newer by then: otherwise
// accepting the write would be right.
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
	var value uint64
	entered := time.Now()
	s.occupy(s.holder.id, lease, before, func() {
		value, err = s.store.load(ctx, fence)
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
		s.score.stalled() // whatever is cut off from here on
	}
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err(), notLost(lease.Release(ctx)))
	}
	for s.seen(name) <= fence.Token {
		if err := s.succeed(ctx, name); err != nil {
			return err
		}
	}
	pause(ctx, oversleep)
	s.writeLate(fence, value+1, stall{client: s.holder.id, fence: fence, began: entered, lost: lost})
	return nil
}

// seen is the greatest token that the storage has seen of a name.
func (s *staller) seen(name string) fencing.Token {
	read, written := s.store.guard.Seen(name)
	return max(read, written)
}

// succeed is the next holder: it queues as everybody does, reads and writes.
func (s *staller) succeed(ctx context.Context, name string) error {
	before := s.checker.newest(name, rwlock.Write)
	lease, err := s.next.locker.Lock(ctx, name)
	if err != nil {
		return err
	}
	s.occupy(s.next.id, lease, before, func() { s.use(ctx, lease) })
	return notLost(lease.Release(ctx))
}

// writeLate is the write of a holder that has overslept. The token in its fence is all that stands in its way.
func (s *staller) writeLate(f fencing.Fence, value uint64, story stall) {
	story.late, s.tried = time.Now(), true
	s.score.wroteLate()
	err := s.store.save(context.Background(), f, value)
	stale, refused := errors.AsType[*fencing.StaleError](err)
	if !refused {
		s.score.violated(storage, fmt.Sprintf("%q: the late write with token %v was accepted (%v)", f.Resource, f.Token, err))
		return
	}
	s.score.refusedStale()
	story.seen = stale.Seen
	s.picture.tell(story)
}

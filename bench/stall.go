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
	stallLead  = 200 * time.Millisecond // ordinary work before each stall
	oversleep  = 80 * time.Millisecond  // how long a stalled holder sleeps on after its successors have entered
	stallRound = stallLead + stallTTL + 2*oversleep
)

// staller is the holder that a lease has to guard against: it takes a lock, stops past its lease, and continues as if
// nothing had happened.
type staller struct {
	*bench
	holder *client
	next   *client // makes sure that another holder enters after the stalled one
}

// play stalls repeatedly until the work is over, but even in a short run not before one late write was tried. ctx
// bounds that.
func (s *staller) play(ctx, working context.Context) {
	until, _ := working.Deadline()
	for round := 0; ctx.Err() == nil && (s.lateWrites == 0 || time.Until(until) > stallRound); round++ {
		within := working
		if s.lateWrites == 0 {
			within = ctx
		}
		pause(within, stallLead)
		err := s.round(within, s.names[round%len(s.names)], round%2 == 1)
		if err != nil && within.Err() == nil {
			s.failed(fmt.Errorf("stalled holder: %w", err))
			pause(ctx, afterFailure)
		}
	}
}

// round is one stall, from the lock to the late write. Nothing in the process runs, so nothing is renewed; or, without
// a cable, renewals run and reach no master. The storage must have seen a newer holder before the late write: otherwise
// it would be right to accept it.
func (s *staller) round(ctx context.Context, name string, pulled bool) error {
	opts := []rwlock.LockOption{rwlock.WithTTL(stallTTL)}
	if !pulled {
		opts = append(opts, rwlock.WithoutRenewal())
	}
	at := s.judge.Begin(name)
	lease, err := s.holder.locker.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	fence := lease.Fence()
	var read reading
	s.occupy(at, lease, func() {
		read, err = s.store.load(ctx, fence)
		if s.accessed(lease, err); pulled {
			s.holder.cable.pull()
		}
		select {
		case <-lease.Done():
		case <-ctx.Done():
		}
	})
	defer s.holder.cable.plug()
	if errors.Is(lease.Err(), rwlock.ErrLost) {
		s.note(func() { s.stalls++ }) // first, because the end of the run may cut off the rest
	}
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err(), notLost(lease.Release(ctx)))
	}
	for written := fencing.Token(0); written <= fence.Token; _, written = s.store.guard.Seen(name) {
		if err := s.succeed(ctx, name, func() {}); err != nil {
			return err
		}
	}
	pause(ctx, oversleep)
	return s.succeed(ctx, name, func() { s.writeLate(fence, read) })
}

// succeed is the next holder: it queues like any other waiter, reads and writes. The function then runs while it still
// has the lock, so that no section of another client overwrites what a late write leaves behind.
func (s *staller) succeed(ctx context.Context, name string, then func()) error {
	at := s.judge.Begin(name)
	lease, err := s.next.locker.Lock(ctx, name)
	if err != nil {
		return err
	}
	s.occupy(at, lease, func() {
		s.use(ctx, lease)
		then()
	})
	return notLost(lease.Release(ctx))
}

// writeLate is the write of a holder after its stall. Only the token in its fence can stop it.
func (s *staller) writeLate(f fencing.Fence, read reading) {
	err := s.store.increment(context.Background(), f, read)
	refused := errors.Is(err, fencing.ErrStale)
	s.note(func() {
		if s.lateWrites++; refused {
			s.refused++
		}
	})
	if !refused {
		s.violated(storage, "%q: the late write with token %v was accepted (%v)", f.Resource, f.Token, err)
	}
}

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
	stallTTL  = 500 * time.Millisecond
	stallLead = 200 * time.Millisecond // ordinary work before each stall
)

// staller is the holder that a lease has to guard against: it takes a lock, stops past its lease, and continues as if
// nothing had happened.
type staller struct {
	*bench
	holder *rwlock.Locker
	next   *rwlock.Locker // makes sure that another holder enters after the stalled one
}

// play stalls again and again until ctx ends.
func (s *staller) play(ctx context.Context) {
	for round := 0; ctx.Err() == nil; round++ {
		pause(ctx, stallLead)
		if err := s.round(ctx, s.names[round%len(s.names)]); err != nil && ctx.Err() == nil {
			s.failed(fmt.Errorf("stalled holder: %w", err))
			pause(ctx, afterFailure)
		}
	}
}

// round is one stall, from the lock to the late write. Nothing of a stopped process runs, so nothing is renewed.
func (s *staller) round(ctx context.Context, name string) error {
	at := s.judge.Begin(name)
	lease, err := s.holder.Lock(ctx, name, rwlock.WithTTL(stallTTL), rwlock.WithoutRenewal())
	if err != nil {
		return err
	}
	var read reading
	s.occupy(at, lease, func() {
		read, err = s.store.load(ctx, lease.Fence())
		s.accessed(lease, err)
		select {
		case <-lease.Done():
		case <-ctx.Done():
		}
	})
	if errors.Is(lease.Err(), rwlock.ErrLost) {
		s.n[stalls].Add(1) // first, because the end of the run may cut off the rest
	}
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err(), notLost(lease.Release(ctx)))
	}
	at = s.judge.Begin(name)
	newer, err := s.next.Lock(ctx, name)
	if err != nil {
		return err
	}
	// The late write is made under the next holder's lock, so that no section overwrites what it leaves behind.
	s.occupy(at, newer, func() {
		s.use(ctx, newer)
		s.writeLate(lease.Fence(), read)
	})
	return notLost(newer.Release(ctx))
}

// writeLate is the write of a holder after its stall. Only the token in its fence can stop it. The storage must have
// seen a newer holder before: otherwise it would be right to accept it.
func (s *staller) writeLate(f fencing.Fence, read reading) {
	if _, written := s.store.guard.Seen(f.Resource); written <= f.Token {
		return
	}
	err := s.store.increment(context.Background(), f, read)
	if s.n[late].Add(1); errors.Is(err, fencing.ErrStale) {
		s.n[refused].Add(1)
		return
	}
	s.violated(storage, "%q: the late write with token %v was accepted (%v)", f.Resource, f.Token, err)
}

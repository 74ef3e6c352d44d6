package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// simPeer is a process of a simulation.
type simPeer struct {
	*peer
	index int
	rng   *rand.Rand // of its work alone
	opts  []rwlock.Option
}

// step is one thing that a process does: an acquisition of any kind, its work, its end.
func (s *simulation) step(ctx context.Context, p *simPeer) {
	pause(ctx, upTo(p.rng, 40*time.Millisecond))
	if ctx.Err() != nil {
		return
	}
	if p.rng.IntN(40) == 0 {
		s.restart(p)
	}
	name := s.names[p.rng.IntN(len(s.names))]
	var opts []rwlock.LockOption
	if p.rng.IntN(5) == 0 {
		opts = append(opts, rwlock.WithoutRenewal())
	}
	wait, cancel := context.WithTimeout(ctx, upTo(p.rng, 4*simTTL))
	defer cancel()
	at := s.checker.begin(name)
	lease, err := p.acquire(wait, name, opts)
	if err != nil {
		s.accept(err)
		return
	}
	s.checker.acquired(at, lease)
	if p.rng.IntN(5) == 0 {
		s.convert(ctx, p, lease)
	}
	p.use(ctx, lease)
	s.checker.sweep()
}

// convert upgrades a reader or downgrades a writer, or tries to.
func (s *simulation) convert(ctx context.Context, p *simPeer, lease *rwlock.Lease) {
	wait, cancel := s.limit(ctx, p.rng, simTTL)
	defer cancel()
	convert := lease.Upgrade
	if lease.Mode() == rwlock.Write {
		convert = lease.Downgrade
	}
	at := s.checker.begin(lease.Name())
	switch err := convert(wait); {
	case err == nil:
		s.checker.acquired(at, lease)
	case !errors.Is(err, rwlock.ErrUpgrade) && !errors.Is(err, rwlock.ErrLost) && !errors.Is(err, rwlock.ErrReleased):
		s.accept(err)
	}
}

// restart ends the process and begins it anew with what it has learnt forgotten.
func (s *simulation) restart(p *simPeer) {
	if err := p.Close(); err != nil {
		s.t.Errorf("seed %d: close: %v", s.seed, err)
	}
	p.start(s.t, p.opts...)
}

func (p *simPeer) acquire(ctx context.Context, name string, opts []rwlock.LockOption) (*rwlock.Lease, error) {
	switch n := p.rng.IntN(10); {
	case n < 5:
		return p.Lock(ctx, name, opts...)
	case n < 8:
		return p.RLock(ctx, name, opts...)
	case n < 9:
		return p.TryLock(ctx, name, opts...)
	default:
		return p.TryRLock(ctx, name, opts...)
	}
}

// use works under the lease, mostly shortly, sometimes beyond its TTL without looking at it.
func (p *simPeer) use(ctx context.Context, lease *rwlock.Lease) {
	switch n := p.rng.IntN(100); {
	case n < 97:
		pause(ctx, upTo(p.rng, 20*time.Millisecond))
	case n < 99:
		pause(ctx, upTo(p.rng, 3*simTTL/2))
	default: // its holder forgets it for longer than any lease without renewal
		select {
		case <-lease.Done():
		case <-time.After(2 * simTTL):
		case <-ctx.Done():
		}
	}
	_ = lease.Release(ctx) // that it was lost or is unconfirmed is part of the game
}

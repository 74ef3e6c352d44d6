package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// TestSimulatedCohorts is TestSimulation with processes whose goroutines share an RWMutex: blocks of tokens, local
// hand-overs, messages of those who wait and lingering, over several masters and under all faults.
func TestSimulatedCohorts(t *testing.T) {
	for i := range max(1, few(*seeds)/3) { // a seed is as much work as three of TestSimulation
		seed := *fromSeed + int64(i)
		if *oneSeed != 0 {
			seed = *oneSeed
		}
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inFakeTime(t, simMasters, func(w *world) { newSimulation(w, seed).runCohorts() })
		})
	}
}

// simThreads is how many goroutines of a process share a lock.
const simThreads = 3

func (s *simulation) runCohorts() {
	ctx, stop := context.WithTimeout(s.Ctx, simFor)
	defer stop()
	var work sync.WaitGroup
	for _, p := range s.peers {
		var opts []rwlock.LockOption
		if p.rng.IntN(2) == 0 {
			opts = append(opts, rwlock.WithLinger(upTo(p.rng, simTTL)))
		}
		for i := range simThreads {
			rng := dice(s.seed, diceWork, 1000+p.index*simThreads+i)
			work.Go(func() {
				for ctx.Err() == nil {
					s.cohortStep(ctx, p, rng, opts)
				}
			})
		}
	}
	f := newFaults(s)
	f.run(ctx)
	f.heal()
	work.Wait()
	s.settle()
	s.Log(s.checker.Summary(), f.struck)
}

// cohortStep is one section of an RWMutex, of any kind.
func (s *simulation) cohortStep(ctx context.Context, p *simPeer, rng *rand.Rand, opts []rwlock.LockOption) {
	pause(ctx, upTo(rng, 20*time.Millisecond))
	name := s.names[rng.IntN(len(s.names))]
	mu := p.RWMutex(name, opts...)
	lock, mode := mu.Lock, rwlock.Write
	switch rng.IntN(8) {
	case 0:
		lock = mu.TryLock
	case 1, 2, 3:
		lock, mode = mu.RLock, rwlock.Read
	case 4:
		lock, mode = mu.TryRLock, rwlock.Read
	}
	wait, cancel := context.WithTimeout(ctx, upTo(rng, 4*simTTL))
	defer cancel()
	at := s.checker.Begin(name)
	if err := lock(wait); err != nil {
		if ctx.Err() == nil {
			s.accept(err)
		}
		return
	}
	v := testkit.NewVisit(mu, name, mode)
	s.checker.Acquired(at, v)
	pause(ctx, upTo(rng, 20*time.Millisecond))
	if rng.IntN(3) == 0 {
		s.convertVisit(ctx, rng, mu, v)
	}
	s.checker.Sweep()
	_ = v.Leave(context.Background(), mu) // that it was lost or is unconfirmed is part of the game
}

// convertVisit has one who is in upgrade or downgrade, or try to.
func (s *simulation) convertVisit(ctx context.Context, rng *rand.Rand, mu *rwlock.RWMutex, v *testkit.Visit) {
	wait, cancel := s.limit(ctx, rng, simTTL)
	defer cancel()
	before := v.Fence()
	after, convert := before, mu.Upgrade
	if after.Mode = rwlock.Write; before.Mode == rwlock.Write {
		after.Mode, convert = rwlock.Read, mu.Downgrade
		v.Is(after) // before the call: others may enter before it returns
	}
	at := s.checker.Begin(before.Resource)
	switch err := convert(wait); {
	case err == nil:
		after.Token = mu.Token()
		v.Is(after)
		s.checker.Acquired(at, v)
		return
	case !errors.Is(err, rwlock.ErrUpgrade) && !errors.Is(err, rwlock.ErrLost):
		s.accept(err)
	}
	v.Is(before)
}

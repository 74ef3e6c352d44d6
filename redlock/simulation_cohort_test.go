package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed74116694/fencelock/fencing"
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
			synctest.Test(t, func(t *testing.T) { newSimulation(t, seed).runCohorts() })
		})
	}
}

// simThreads is how many goroutines of a process share a lock.
const simThreads = 3

func (s *simulation) runCohorts() {
	ctx, stop := context.WithTimeout(s.t.Context(), simFor)
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
	s.t.Log(s.checker.summary(), f.struck)
}

// cohortStep is one section of an RWMutex, of any kind.
func (s *simulation) cohortStep(ctx context.Context, p *simPeer, rng *rand.Rand, opts []rwlock.LockOption) {
	pause(ctx, upTo(rng, 20*time.Millisecond))
	name := s.names[rng.IntN(len(s.names))]
	mu := p.RWMutex(name, opts...)
	lock, unlock, mode := mu.Lock, mu.Unlock, rwlock.Write
	switch rng.IntN(8) {
	case 0:
		lock = mu.TryLock
	case 1, 2, 3:
		lock, unlock, mode = mu.RLock, mu.RUnlock, rwlock.Read
	case 4:
		lock, unlock, mode = mu.TryRLock, mu.RUnlock, rwlock.Read
	}
	wait, cancel := context.WithTimeout(ctx, upTo(rng, 4*simTTL))
	defer cancel()
	at := s.checker.begin(name)
	if err := lock(wait); err != nil {
		if ctx.Err() == nil {
			s.accept(err)
		}
		return
	}
	s.checker.acquired(at, &visit{name: name, mode: mode, token: mu.Token(), ctx: mu.Context(context.Background())})
	pause(ctx, upTo(rng, 20*time.Millisecond))
	s.checker.sweep()
	_ = unlock(context.Background()) // that it was lost or is unconfirmed is part of the game
}

// visit is what one goroutine has of an RWMutex.
type visit struct {
	name  string
	mode  rwlock.Mode
	token fencing.Token
	ctx   context.Context
}

func (v *visit) Mode() rwlock.Mode    { return v.mode }
func (v *visit) Token() fencing.Token { return v.token }
func (v *visit) Err() error           { return context.Cause(v.ctx) }

func (v *visit) Deadline() time.Time {
	deadline, _ := fencing.Deadline(v.ctx, v.name)
	return deadline
}

package redlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

var (
	oneSeed  = flag.Int64("redlock.seed", 0, "simulate this seed alone")
	seeds    = flag.Int("redlock.seeds", 3, "how many seeds are simulated")
	fromSeed = flag.Int64("redlock.from", 1, "the first of them")
)

// What a simulation consists of.
const (
	simMasters = 5
	simPeers   = 9
	simNames   = 3
	simTTL     = time.Second
	simFor     = 12 * time.Second // of fake time under faults
	simRest    = 15 * time.Second // until everything must work again: backoff, quarantine, a clock set back
	simSkew    = 20 * time.Millisecond
)

// TestSimulation runs the real engine and scripts over five masters in fake time, under faults drawn from a seed.
// A seed fixes the faults, the delays of messages and what the processes do; the order in which goroutines run within
// one moment it does not.
func TestSimulation(t *testing.T) {
	chosen := []int64{*oneSeed}
	if *oneSeed == 0 {
		chosen = chosen[:0]
		for i := range few(*seeds) {
			chosen = append(chosen, *fromSeed+int64(i))
		}
	}
	for _, seed := range chosen {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Logf("to run it again: go test ./redlock -run 'TestSimulation$' -redlock.seed=%d", seed)
				newSimulation(t, seed).run()
			})
		})
	}
}

type simulation struct {
	*set
	seed    int64
	checker *checker
	peers   []*simPeer
	skews   []time.Duration // of the masters' clocks, where no step has struck them
	names   []string
	patient bool // some waits are not cut short; see limit

	showsRuns bool // the masters show their run ids, as real ones do
}

// dice returns a source of its own for each part of a simulation, so that one part's draws do not move another's.
func dice(seed int64, part, index int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), uint64(part)<<32|uint64(index)))
}

// The parts of a simulation that draw.
const (
	diceWorld = iota
	diceWork
	diceDelay
	diceFaults
)

func newSimulation(t *testing.T, seed int64) *simulation {
	s := &simulation{set: newSet(t, simMasters), seed: seed, checker: newChecker(t, fmt.Sprintf("seed %d", seed))}
	rng := dice(seed, diceWorld, 0)
	s.showsRuns = seed%4 != 2
	for _, m := range s.minis {
		if s.showsRuns {
			m.NewProcess()
		}
		s.skews = append(s.skews, skew(rng))
		m.Skew(s.skews[len(s.skews)-1])
	}
	for i := range 1 + rng.IntN(simNames) {
		s.names = append(s.names, fmt.Sprintf("resource-%d", i))
	}
	for i := range simPeers {
		p := &simPeer{index: i, rng: dice(seed, diceWork, i)}
		if i%2 == 0 {
			p.peer = s.link(nil)
		} else {
			p.peer = s.dial(0, nil)
		}
		for j, link := range p.links {
			delays(link, dice(seed, diceDelay, i*simMasters+j))
		}
		p.opts = []rwlock.Option{
			rwlock.WithTTL(simTTL), rwlock.WithMeta(fmt.Sprintf("peer-%d", i)), redlock.WithNodeTimeout(80 * time.Millisecond),
			clocked(skew(rng), 1+(rng.Float64()-0.5)*0.008),
		}
		p.start(t, p.opts...)
		s.peers = append(s.peers, p)
	}
	return s
}

func skew(rng *rand.Rand) time.Duration {
	return time.Duration((2*rng.Float64() - 1) * float64(simSkew))
}

// clocked gives a process a clock that is ahead by offset and runs at another rate, within the drift that is allowed.
func clocked(offset time.Duration, rate float64) rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) {
		start := time.Now()
		l.Clock = clock.Clock(func() (time.Duration, time.Time) {
			passed := time.Duration(float64(time.Since(start)) * rate)
			return passed, start.Add(offset + passed)
		})
	})
}

func (s *simulation) run() {
	ctx, stop := context.WithTimeout(s.t.Context(), simFor)
	defer stop()
	var work sync.WaitGroup
	for _, p := range s.peers {
		work.Go(func() {
			for ctx.Err() == nil {
				s.step(ctx, p)
			}
		})
	}
	f := newFaults(s)
	f.run(ctx)
	f.heal()
	work.Wait()
	s.settle()
	s.t.Log(s.checker.summary(), f.struck)
}

// patience is far more than anybody has to wait in a simulation without faults, and less than the TTL: by then a hold
// has expired that another has waited for.
const patience = 5 * time.Second

var errStarved = fmt.Errorf("not served within %v", patience)

// limit bounds a wait by less than d, or where the simulation is patient every second by what it must not take.
func (s *simulation) limit(
	ctx context.Context, rng *rand.Rand, d time.Duration,
) (context.Context, context.CancelFunc) {
	if s.patient && rng.IntN(2) == 0 {
		return context.WithTimeoutCause(context.WithoutCancel(ctx), patience, errStarved)
	}
	return context.WithTimeout(ctx, upTo(rng, d))
}

// accept lets pass what the faults explain.
func (s *simulation) accept(err error) {
	gaveUp := errors.Is(err, rwlock.ErrNotAcquired) && !errors.Is(err, errStarved)
	if !gaveUp && !errors.Is(err, rwlock.ErrNoQuorum) {
		s.t.Errorf("seed %d: %v", s.seed, err)
	}
}

// settle checks, after all faults have ended, that everybody gets every lock again and that nothing is left behind.
func (s *simulation) settle() {
	for _, p := range s.peers {
		for _, link := range p.links {
			link.Delay(time.Millisecond)
		}
	}
	time.Sleep(simRest)
	var work sync.WaitGroup
	for _, p := range s.peers {
		work.Go(func() {
			for _, name := range s.names {
				at := s.checker.begin(name)
				lease, err := p.Lock(soon(s.t, 5*time.Second), name)
				if err != nil {
					s.t.Errorf("seed %d: all is well again, but %v", s.seed, err)
					return
				}
				s.checker.acquired(at, lease)
				if err := lease.Release(s.t.Context()); err != nil {
					s.t.Errorf("seed %d: all is well again, but release: %v", s.seed, err)
				}
			}
		})
	}
	work.Wait()
	time.Sleep(simTTL)
	for _, name := range s.names {
		state, err := s.peers[0].Inspect(soon(s.t, time.Second), name)
		require.NoError(s.t, err)
		for _, m := range state.Masters {
			require.Empty(s.t, slices.Concat(meta(m.Holders), queue(m.Waiters)),
				"seed %d: left behind on master %d", s.seed, m.Index)
		}
	}
}

func meta(holders []rwlock.Holder) (all []string) {
	for _, h := range holders {
		all = append(all, "holder "+h.Meta)
	}
	return all
}

func queue(waiters []rwlock.Waiter) (all []string) {
	for _, w := range waiters {
		all = append(all, "waiter "+w.Meta)
	}
	return all
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)) + 1)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

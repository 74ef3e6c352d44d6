package redlock_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

var conversionSeeds = flag.Int("redlock.conversions", 2, "how many seeds of upgrades and downgrades are simulated")

// convertFor is how much fake time they get.
const convertFor = 3 * time.Second

// TestSimulatedConversions has readers upgrade and writers downgrade over three masters, as leases and in an RWMutex,
// beside others who come and give up, with delays drawn from a seed and, for every second one, a master down. Nobody
// gets in between, tokens go up, and nobody waits for ever.
func TestSimulatedConversions(t *testing.T) {
	for i := range few(*conversionSeeds) {
		inFakeTime(t, 3, func(w *world) { simulateConversions(w, *fromSeed+int64(i)) })
	}
}

func simulateConversions(w *world, seed int64) {
	s := &simulation{world: w, seed: seed, checker: testkit.NewOracle(w, fmt.Sprintf("seed %d", seed))}
	s.names, s.patient = []string{"n"}, true
	down, mutexes := int(seed%2), int(seed/2%2*2)
	ctx, stop := context.WithTimeout(w.Ctx, convertFor)
	defer stop()
	var work sync.WaitGroup
	for i := range 4 {
		p := &simPeer{process: s.Connect(testkit.Net{}), index: i, rng: dice(seed, diceWork, i)}
		for _, link := range p.Links {
			link.Delay(upTo(p.rng, 10*time.Millisecond))
		}
		p.Start(rwlock.WithTTL(2*patience), redlock.WithNodeTimeout(80*time.Millisecond))
		p.Section("warm-up")
		p.CutOff(testkit.Span(0, down)...)
		s.peers = append(s.peers, p)
		work.Go(func() {
			for ctx.Err() == nil {
				s.convertLease(ctx, p)
			}
		})
		for j := range mutexes {
			rng := dice(seed, diceWork, 100+10*i+j)
			work.Go(func() {
				for ctx.Err() == nil {
					s.convertMutex(ctx, p, rng)
				}
			})
		}
	}
	work.Wait()
	for _, p := range s.peers {
		p.Restore(testkit.Span(0, down)...)
	}
	s.settle()
	require.Greater(w, s.checker.Grants, 50, "seed %d", seed)
}

// convertLease takes a lease and has it converted some times.
func (s *simulation) convertLease(ctx context.Context, p *simPeer) {
	pause(ctx, upTo(p.rng, 10*time.Millisecond))
	wait, cancel := s.limit(ctx, p.rng, 400*time.Millisecond)
	defer cancel()
	lock := p.Lock
	if p.rng.IntN(3) > 0 {
		lock = p.RLock
	}
	at := s.checker.Begin("n")
	lease, err := lock(wait, "n")
	if err != nil {
		s.accept(err)
		return
	}
	s.checker.Acquired(at, lease)
	for range p.rng.IntN(4) {
		pause(ctx, upTo(p.rng, 10*time.Millisecond))
		s.convert(ctx, p, lease)
		s.checker.Sweep()
	}
	s.Release(lease)
}

// convertMutex does the same in an RWMutex.
func (s *simulation) convertMutex(ctx context.Context, p *simPeer, rng *rand.Rand) {
	pause(ctx, upTo(rng, 10*time.Millisecond))
	wait, cancel := s.limit(ctx, rng, 400*time.Millisecond)
	defer cancel()
	mu := p.RWMutex("n")
	lock, mode := mu.Lock, rwlock.Write
	if rng.IntN(3) > 0 {
		lock, mode = mu.RLock, rwlock.Read
	}
	at := s.checker.Begin("n")
	if err := lock(wait); err != nil {
		s.accept(err)
		return
	}
	v := testkit.NewVisit(mu, "n", mode)
	s.checker.Acquired(at, v)
	for range rng.IntN(4) {
		pause(ctx, upTo(rng, 10*time.Millisecond))
		s.convertVisit(ctx, rng, mu, v)
		s.checker.Sweep()
	}
	require.NoError(s, v.Leave(context.Background(), mu))
}

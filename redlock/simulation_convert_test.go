package redlock_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
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
		synctest.Test(t, func(t *testing.T) { simulateConversions(t, *fromSeed+int64(i)) })
	}
}

func simulateConversions(t *testing.T, seed int64) {
	s := &simulation{set: newSet(t, 3), seed: seed, checker: newChecker(t, fmt.Sprintf("seed %d", seed))}
	s.names, s.patient = []string{"n"}, true
	down, mutexes := int(seed%2), int(seed/2%2*2)
	ctx, stop := context.WithTimeout(t.Context(), convertFor)
	defer stop()
	var work sync.WaitGroup
	for i := range 4 {
		p := &simPeer{peer: s.link(nil), index: i, rng: dice(seed, diceWork, i)}
		for _, link := range p.links {
			link.Delay(upTo(p.rng, 10*time.Millisecond))
		}
		p.start(t, rwlock.WithTTL(2*patience), redlock.WithNodeTimeout(80*time.Millisecond))
		p.warm(t)
		cutOff(p.links[:down])
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
		for _, link := range p.links[:down] {
			link.Restore()
		}
	}
	s.settle()
	require.Greater(t, s.checker.grants, 50, "seed %d", seed)
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
	at := s.checker.begin("n")
	lease, err := lock(wait, "n")
	if err != nil {
		s.accept(err)
		return
	}
	s.checker.acquired(at, lease)
	for range p.rng.IntN(4) {
		pause(ctx, upTo(p.rng, 10*time.Millisecond))
		s.convert(ctx, p, lease)
		s.checker.sweep()
	}
	require.NoError(s.t, lease.Release(s.t.Context()))
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
	at := s.checker.begin("n")
	if err := lock(wait); err != nil {
		s.accept(err)
		return
	}
	v := &visit{ctx: mu.Context(context.Background())}
	v.is(fencing.Fence{Resource: "n", Token: mu.Token(), Mode: mode})
	s.checker.acquired(at, v)
	for range rng.IntN(4) {
		pause(ctx, upTo(rng, 10*time.Millisecond))
		s.convertVisit(ctx, rng, mu, v)
		s.checker.sweep()
	}
	require.NoError(s.t, s.leave(mu, v))
}

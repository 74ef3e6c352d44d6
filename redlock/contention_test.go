package redlock_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

const contenders = 32

var crowdSeeds = flag.Int("redlock.crowds", 2, "in how many seeds a crowd contends for one lock")

// jitter returns the latency of a link whose messages take base to 2 base each way.
func jitter(base time.Duration, rng *rand.Rand) func() time.Duration {
	var mu sync.Mutex
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return base + upTo(rng, base)
	}
}

// crowd starts processes whose links to each master have delays of their own.
func (s *set) crowd(n int, seed int64) []*peer {
	var all []*peer
	for i := range n {
		p := s.link(nil)
		for j, link := range p.links {
			link.DelayFunc(testredis.Both, jitter(time.Millisecond, dice(seed, diceDelay, i*len(s.minis)+j)))
		}
		p.start(s.t)
		all = append(all, p)
	}
	return all
}

// countScripts counts by name which scripts the first master is sent, over all links that it has now. It is to be
// called before their first acquisition; see scriptBook.
func (s *set) countScripts() func() map[scripts.Name]int {
	book := newScriptBook()
	var mu sync.Mutex
	counts := make(map[scripts.Name]int)
	for _, link := range s.minis[0].Links() {
		link.OnCommand(func(cmd []string) {
			if name := book.nameOf(cmd); name != "" {
				mu.Lock()
				counts[name]++
				mu.Unlock()
			}
		})
	}
	return func() map[scripts.Name]int {
		synctest.Wait() // what a quorum did not wait for may still be on its way to this master
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}
}

func sum(counts map[scripts.Name]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// Who came first gets in first, on all masters, though their messages overtake each other.
func TestContendersEnterInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		peers := s.crowd(contenders, 1)
		holder := s.peer(time.Millisecond)
		counted := s.countScripts()
		contend(t, peers, 1) // they connect, and begin to listen
		held, err := holder.Lock(t.Context(), "door")
		require.NoError(t, err)
		time.Sleep(time.Second)
		before := sum(counted())

		var mu sync.Mutex
		var entered []int
		var work sync.WaitGroup
		for i, p := range peers {
			work.Go(func() {
				lease, err := p.Lock(t.Context(), "door")
				if err != nil {
					t.Errorf("contender %d: %v", i, err)
					return
				}
				mu.Lock()
				entered = append(entered, i)
				mu.Unlock()
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("contender %d: release: %v", i, err)
				}
			})
			time.Sleep(2 * time.Millisecond) // less than a message may take, and more than ids resolve
		}
		time.Sleep(20 * time.Millisecond) // all stand in line
		arrived := sum(counted())
		require.GreaterOrEqual(t, arrived-before, contenders, "each has asked")
		begun := time.Now()
		require.NoError(t, held.Release(t.Context()))
		work.Wait()

		require.IsIncreasing(t, entered)
		require.Len(t, entered, contenders)
		t.Logf("%d hand-offs in %v, scripts on each master, with those before: %v", contenders, time.Since(begun), counted())
		require.LessOrEqual(t, float64(sum(counted())-arrived)/contenders, 3.0, "rounds of messages a hand-off")
	})
}

// However the votes split among those who come in one moment, all get in, and without a storm of messages.
func TestCrowdIsServedWithoutLivelock(t *testing.T) {
	var mu sync.Mutex
	scriptsSent, handOffs, slowest := 0, 0, time.Duration(0)
	for i := range few(*crowdSeeds) {
		seed := *fromSeed + int64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 5)
				peers := s.crowd(contenders, seed)
				contend(t, peers, seed) // they connect, and begin to listen
				time.Sleep(time.Second)
				s.reset()
				took := contend(t, peers, seed)
				mu.Lock()
				defer mu.Unlock()
				for _, n := range s.scripts() {
					scriptsSent += n
				}
				handOffs += contenders
				slowest = max(slowest, took)
			})
		})
	}
	rounds := float64(scriptsSent) / float64(handOffs) / 5
	t.Logf("%d seeds: at most %v until all %d had been in; %.2f scripts a hand-off on each master, arrivals included",
		few(*crowdSeeds), slowest, contenders, rounds)
	require.LessOrEqual(t, rounds, 4.0, "a round for the arrival and three for the hand-off")
}

// contend lets all peers ask in one moment, and returns how long it took until the last one had been in.
func contend(t *testing.T, peers []*peer, seed int64) time.Duration {
	b := newChecker(t, fmt.Sprintf("seed %d", seed))
	begun := time.Now()
	var work sync.WaitGroup
	for i, p := range peers {
		work.Go(func() {
			at := b.begin("door")
			lease, err := p.Lock(soon(t, 10*time.Minute), "door", rwlock.WithMeta(fmt.Sprint(i)))
			if err != nil {
				t.Errorf("seed %d: contender %d: %v", seed, i, err)
				return
			}
			b.acquired(at, lease)
			time.Sleep(time.Millisecond)
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("seed %d: contender %d: release: %v", seed, i, err)
			}
		})
	}
	work.Wait()
	return time.Since(begun)
}

package redlock_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

var contenders = testredis.Few(16, 32)

var crowdSeeds = flag.Int("redlock.crowds", testredis.Few(1, 2), "in how many seeds a crowd contends for one lock")

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
func crowd(w *world, n int, seed int64) []*process {
	var all []*process
	for i := range n {
		p := w.Connect(testkit.Net{})
		for j, link := range p.Links {
			link.DelayFunc(testredis.Both, jitter(time.Millisecond, dice(seed, diceDelay, i*len(w.Minis)+j)))
		}
		all = append(all, p.Start())
	}
	return all
}

// Who came first gets in first, on all masters, though their messages overtake each other.
func TestContendersEnterInOrderOfArrival(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		peers := crowd(w, contenders, 1)
		holder := w.Process()
		sent := w.Requests()
		contend(w, peers, 1) // they connect, and begin to listen
		held := holder.Take("door", rwlock.Write)
		time.Sleep(time.Second)
		before := len(sent.All())

		var order testkit.Order
		var work sync.WaitGroup
		for i, p := range peers {
			work.Go(func() {
				lease, err := p.Lock(w.Ctx, "door")
				if err != nil {
					w.Errorf("contender %d: %v", i, err)
					return
				}
				order.Enter(i, lease)
				if err := lease.Release(w.Ctx); err != nil {
					w.Errorf("contender %d: release: %v", i, err)
				}
			})
			time.Sleep(2 * time.Millisecond) // less than a message may take, and more than ids resolve
		}
		time.Sleep(20 * time.Millisecond) // all stand in line
		arrived := len(sent.All())
		require.GreaterOrEqual(w, arrived-before, contenders, "each has asked")
		begun := time.Now()
		w.Release(held)
		work.Wait()

		order.RequireFIFO(w, contenders)
		w.Logf("%d hand-offs in %v, scripts on each master, with those before: %v",
			contenders, time.Since(begun), sent.Counts())
		require.LessOrEqual(w, float64(len(sent.All())-arrived)/float64(contenders), 3.0, "rounds of messages a hand-off")
	})
}

// However the votes split among those who come in one moment, all get in, and without a storm of messages.
func TestCrowdIsServedWithoutLivelock(t *testing.T) {
	var mu sync.Mutex
	scriptsSent, handOffs, slowest := 0, 0, time.Duration(0)
	for i := range *crowdSeeds {
		seed := *fromSeed + int64(i)
		runInFakeTime(t, fmt.Sprintf("seed %d", seed), 5, func(w *world) {
			peers := crowd(w, contenders, seed)
			contend(w, peers, seed) // they connect, and begin to listen
			time.Sleep(time.Second)
			w.ResetCalls()
			took := contend(w, peers, seed)
			mu.Lock()
			defer mu.Unlock()
			for _, n := range w.ScriptCalls() {
				scriptsSent += n
			}
			handOffs += contenders
			slowest = max(slowest, took)
		})
	}
	rounds := float64(scriptsSent) / float64(handOffs) / 5
	t.Logf("%d seeds: at most %v until all %d had been in; %.2f scripts a hand-off on each master, arrivals included",
		*crowdSeeds, slowest, contenders, rounds)
	require.LessOrEqual(t, rounds, 4.0, "a round for the arrival and three for the hand-off")
}

// contend lets all peers ask in one moment, and returns how long it took until the last one had been in.
func contend(w *world, peers []*process, seed int64) time.Duration {
	b := judge.For(w, fmt.Sprintf("seed %d", seed))
	begun := time.Now()
	var work sync.WaitGroup
	for i, p := range peers {
		work.Go(func() {
			at := b.Begin("door")
			lease, err := p.Lock(w.Soon(10*time.Minute), "door", rwlock.WithMeta(fmt.Sprint(i)))
			if err != nil {
				w.Errorf("seed %d: contender %d: %v", seed, i, err)
				return
			}
			b.Acquired(at, lease)
			time.Sleep(time.Millisecond)
			if err := lease.Release(w.Ctx); err != nil {
				w.Errorf("seed %d: contender %d: release: %v", seed, i, err)
			}
		})
	}
	work.Wait()
	return time.Since(begun)
}

// refuseReleasesOf has the masters refuse each release of this lock, so that others in the background wait for a probe.
func refuseReleasesOf(w *world, p *process, name string) {
	release := w.Running(scripts.Release)
	for _, link := range p.Links {
		link.Deny(func(cmd []string) string {
			if release(cmd) && strings.Contains(cmd[3], name) {
				return "BUSY not now"
			}
			return ""
		})
		link.DelayNextReply(w.Running(scripts.Acquire), 40*time.Millisecond)
	}
	require.ErrorIs(w, expect.ErrorOf(p.Lock(w.Soon(20*time.Millisecond), name)), context.DeadlineExceeded)
	time.Sleep(100 * time.Millisecond)
}

// A single attempt whose grants came too late asks again. The holds of those grants do not refuse it.
func TestASingleAttemptIsNotRefusedByItsLateGrants(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		const ttl = 2 * time.Second
		p := warmed(w.ProcessAt(0, redlock.WithNodeTimeout(ttl-time.Millisecond)))
		refuseReleasesOf(w, p, "other")
		for i := range 3 {
			for _, link := range p.Links[1:] {
				link.DelayNextReply(w.Running(scripts.Acquire), ttl-15*time.Millisecond)
			}
			lease := expect.NoError(p.TryLock(w.Ctx, fmt.Sprint("n", i), rwlock.WithTTL(ttl))).In(w)
			require.NoError(w, lease.Err())
			w.Release(lease)
		}
	})
}

// A waiter whose grants came too late asks with another hold, and keeps its place.
func TestAWaiterThatAsksAgainKeepsItsPlace(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		w.TTL = 2 * time.Second
		first, second, third := w.Process(), w.Process(), w.Process()
		for _, p := range []*process{first, second, third} {
			p.WarmUp()
		}
		for _, link := range first.Links {
			link.DelayNextReply(w.Running("acquire"), w.TTL+w.TTL/4)
		}
		early := first.Acquire(w.Ctx, "n", rwlock.Write)
		w.Pass(100 * time.Millisecond)
		next := second.Queue("n", rwlock.Write)
		last := third.Queue("n", rwlock.Write)
		held := next.Granted() // what the first was granted has expired
		require.True(w, early.IsWaiting())
		w.Pass(w.TTL)
		require.True(w, last.IsWaiting())
		w.Release(held)
		require.Same(w, early, w.First(early, last))
	})
}

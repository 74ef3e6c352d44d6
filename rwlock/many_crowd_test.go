package rwlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

var manyFor = flag.Duration("rwlock.many", 0, "how long the crowds that take several locks run on a server")

// crowdOfMany has processes whose goroutines take random subsets of six locks, for writing and for reading, named in
// any order.
type crowdOfMany struct {
	w                     *world
	processes, goroutines int
	seed                  uint64
	until                 time.Time
	work                  time.Duration // most of it under the locks
	oracle                *testkit.Oracle
	mu                    sync.Mutex
	taken, refused        int
	longest               time.Duration
}

func (c *crowdOfMany) run() {
	w := c.w
	var all sync.WaitGroup
	for i := range c.processes {
		p := w.Process()
		for k := range c.goroutines {
			all.Go(func() { c.play(p, rand.New(rand.NewPCG(c.seed, uint64(i*c.goroutines+k)))) })
		}
	}
	all.Wait()
	require.NotZero(w, c.taken)
	w.Logf("seed %d: %d calls granted, %d refused, %d leases, the longest wait %v",
		c.seed, c.taken, c.refused, c.oracle.Grants, c.longest)
}

// play takes locks until the time is over. No wait lasts for ever: one that is longer than patience is a deadlock.
func (c *crowdOfMany) play(p *process, rng *rand.Rand) {
	for time.Now().Before(c.until) {
		var names []string
		for _, i := range rng.Perm(6)[:1+rng.IntN(6)] {
			names = append(names, fmt.Sprint("n", i))
		}
		take := p.LockAll
		switch {
		case rng.IntN(8) == 0:
			take = p.TryLockAll
		case rng.IntN(4) == 0:
			take = p.RLockAll
		}
		patience := testkit.Patience
		if rng.IntN(8) == 0 { // gives up while it waits
			patience = time.Duration(rng.Int64N(int64(4*c.work) + 1))
		}
		c.takeOnce(p, names, take, patience, time.Duration(rng.Int64N(int64(c.work)+1)))
	}
}

func (c *crowdOfMany) takeOnce(
	p *process, names []string,
	take func(context.Context, []string, ...rwlock.LockOption) (*rwlock.MultiLease, error),
	patience, work time.Duration,
) {
	ctx, cancel := context.WithTimeout(c.w.Ctx, patience)
	defer cancel()
	attempts := make([]testkit.Attempt, len(names))
	for i, name := range names {
		attempts[i] = c.oracle.Begin(name)
	}
	begun := time.Now()
	all, err := take(ctx, names)
	waited := time.Since(begun)
	if err == nil {
		for i, lease := range all.Leases() {
			c.oracle.Acquired(attempts[i], lease)
		}
		time.Sleep(work)
		if end := all.Err(); end != nil {
			c.w.Errorf("lost: %v", end)
		}
		err = all.Release(context.Background())
	} else if patience < testkit.Patience || errors.Is(err, rwlock.ErrNotAcquired) && ctx.Err() == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refused++
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken++
	c.longest = max(c.longest, waited)
	if err != nil {
		c.w.Errorf("%v: %v", names, err)
	}
}

// Eight processes of eight goroutines take random subsets of six locks: every wait ends, and each lock has one writer.
func TestCrowdsTakeSeveralLocks(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint("fake time, seed ", seed), func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				w.Net.Way = time.Millisecond
				c := &crowdOfMany{
					w: w, processes: 8, goroutines: 8, seed: seed, until: time.Now().Add(time.Second),
					work: 10 * time.Millisecond, oracle: testkit.NewOracle(w.T, fmt.Sprint("seed ", seed)),
				}
				c.run()
			})
		})
	}
	t.Run("server", func(t *testing.T) {
		if *manyFor == 0 {
			t.Skip("takes the time of -rwlock.many")
		}
		w := testkit.OnServers(t, testredis.Start(t))
		c := &crowdOfMany{
			w: w, processes: 8, goroutines: 8, seed: uint64(time.Now().UnixNano()), until: time.Now().Add(*manyFor),
			work: 2 * time.Millisecond, oracle: testkit.NewOracle(t, "server"),
		}
		c.run()
	})
}

package testkit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// ManyCrowd has processes whose goroutines take random subsets of six locks, for writing and for reading, named in
// any order.
type ManyCrowd struct {
	Processes, Goroutines int
	Seed                  uint64
	Lasts                 time.Duration
	Work                  time.Duration // most of it under the locks of one call

	w              *World
	until          time.Time
	oracle         *Oracle
	mu             sync.Mutex
	taken, refused int
	longest        time.Duration
}

// Run returns when all calls are over. It fails the test if a wait does not end, if a lock has two holders that exclude
// each other, or if its tokens are out of order.
func (c *ManyCrowd) Run(w *World) {
	w.Helper()
	c.w, c.until, c.oracle = w, time.Now().Add(c.Lasts), NewOracle(w.T, fmt.Sprint("seed ", c.Seed))
	var all sync.WaitGroup
	for i := range c.Processes {
		p := w.Process()
		p.WarmUp() // a set of masters that is being founded refuses single attempts
		for k := range c.Goroutines {
			all.Go(func() { c.play(p, rand.New(rand.NewPCG(c.Seed, uint64(i*c.Goroutines+k)))) })
		}
	}
	all.Wait()
	require.NotZero(w, c.taken)
	w.Logf("seed %d: %d calls granted, %d refused, %d leases, the longest wait %v",
		c.Seed, c.taken, c.refused, c.oracle.Grants, c.longest)
}

// play takes locks until the time is over. No wait lasts for ever: one that is longer than patience is a deadlock.
func (c *ManyCrowd) play(p *Process, rng *rand.Rand) {
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
		patience := Patience
		if rng.IntN(8) == 0 { // gives up while it waits
			patience = time.Duration(rng.Int64N(int64(4*c.Work) + 1))
		}
		c.takeOnce(p, names, take, patience, time.Duration(rng.Int64N(int64(c.Work)+1)))
	}
}

func (c *ManyCrowd) takeOnce(
	p *Process, names []string,
	take func(context.Context, []string, ...rwlock.LockOption) (*rwlock.MultiLease, error),
	patience, work time.Duration,
) {
	ctx, cancel := context.WithTimeout(c.w.Ctx, patience)
	defer cancel()
	attempts := make([]Attempt, len(names))
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
	} else if patience < Patience || errors.Is(err, rwlock.ErrNotAcquired) && ctx.Err() == nil {
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

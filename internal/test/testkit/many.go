package testkit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/rwlock"
)

// ManyCrowd has processes whose goroutines take random subsets of six locks, each for writing or for reading, named
// in any order.
type ManyCrowd struct {
	Processes, Goroutines int
	Seed                  uint64
	Lasts                 time.Duration
	Work                  time.Duration // most of it under the locks of one call

	w              *World
	until          time.Time
	oracle         *judge.Judge
	mu             sync.Mutex
	taken, refused int
	longest        time.Duration
}

// Run returns when all calls are over. It fails the test if a wait does not end, if a lock has two holders that exclude
// each other, or if its tokens are out of order.
func (c *ManyCrowd) Run(w *World) {
	w.Helper()
	c.w, c.until, c.oracle = w, time.Now().Add(c.Lasts), judge.For(w, fmt.Sprint("seed ", c.Seed))
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
		c.Seed, c.taken, c.refused, c.oracle.Grants(), c.longest)
}

// play takes locks until the time is over. No wait lasts for ever: one that is longer than patience is a deadlock.
func (c *ManyCrowd) play(p *Process, rng *rand.Rand) {
	for time.Now().Before(c.until) {
		var wants []rwlock.Want
		readers := rng.IntN(4) // of 3: none, some or all
		for _, i := range rng.Perm(6)[:1+rng.IntN(6)] {
			wants = append(wants, rwlock.Want{Name: fmt.Sprint("n", i), Mode: rwlock.Write})
			if rng.IntN(3) < readers {
				wants[len(wants)-1].Mode = rwlock.Read
			}
		}
		take := p.LockAll
		if rng.IntN(8) == 0 {
			take = p.TryLockAll
		}
		patience := Patience
		if rng.IntN(8) == 0 { // gives up while it waits
			patience = time.Duration(rng.Int64N(int64(4*c.Work) + 1))
		}
		c.takeOnce(p, wants, take, patience, time.Duration(rng.Int64N(int64(c.Work)+1)))
	}
}

func (c *ManyCrowd) takeOnce(
	p *Process, wants []rwlock.Want,
	take func(context.Context, []rwlock.Want, ...rwlock.LockOption) (*rwlock.MultiLease, error),
	patience, work time.Duration,
) {
	ctx, cancel := context.WithTimeout(c.w.Ctx, patience)
	defer cancel()
	attempts := make([]judge.Attempt, len(wants))
	for i, want := range wants {
		attempts[i] = c.oracle.Begin(want.Name)
	}
	begun := time.Now()
	all, err := take(ctx, wants)
	waited := time.Since(begun)
	if err == nil {
		for i, lease := range all.Leases() {
			c.oracle.Acquired(attempts[i], lease)
			if lease.Mode() != wants[i].Mode {
				c.w.Errorf("%v was taken for %v", wants[i], lease.Mode())
			}
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
		c.w.Errorf("%v: %v", wants, err)
	}
}

// MixedModes takes locks of which one call reads some and writes others, from several processes.
func MixedModes(w *World) {
	p, q, r := w.Process(), w.Process(), w.Process()
	both := func(reads, writes string) []rwlock.Want { return append(rwlock.Reads(reads), rwlock.Writes(writes)...) }
	take := func(p *Process, wants []rwlock.Want) (*Call, *rwlock.MultiLease) {
		all := new(rwlock.MultiLease)
		return w.Call(w.Soon(Patience), func(ctx context.Context) error {
			taken, err := p.LockAll(ctx, wants)
			if err == nil {
				*all = *taken
			}
			return err
		}), all
	}

	// Whichever comes first, each has its own mode.
	for _, wants := range [][]rwlock.Want{both("rates", "a"), both("a", "rates")} {
		reads, writes := wants[0].Name, wants[1].Name
		all, err := p.LockAll(w.Ctx, wants)
		require.NoError(w, err)
		ctx := all.Context(w.Ctx)
		for i, lease := range all.Leases() {
			require.Equal(w, wants[i], rwlock.Want{Name: lease.Name(), Mode: lease.Mode()})
			fence, err := fencing.Require(ctx, lease.Name())
			require.NoError(w, err)
			require.Equal(w, fencing.Fence{Resource: lease.Name(), Token: lease.Token(), Mode: wants[i].Mode}, fence)
		}
		require.Len(w, slices.Collect(fencing.All(ctx)), 2)
		beside, err := q.TryLockAll(w.Ctx, both(reads, "b"))
		require.NoError(w, err, "readers of %q share it", reads)
		for _, excluded := range [][]rwlock.Want{rwlock.Writes(reads), rwlock.Reads(writes), both("b2", reads)} {
			refused := new(rwlock.AcquireError)
			_, err := r.TryLockAll(w.Ctx, excluded)
			require.ErrorAs(w, err, &refused, "%v", excluded)
			require.Equal(w, excluded[len(excluded)-1], rwlock.Want{Name: refused.Name, Mode: refused.Mode})
		}
		writer, written := take(r, both("b3", reads))
		w.UntilWaiting(reads, 1)
		require.NoError(w, all.Release(w.Ctx))
		require.Len(w, w.Inspect(reads).Holders, 1, "the other reader keeps the writer out")
		require.NoError(w, beside.Release(w.Ctx))
		require.NoError(w, writer.Result())
		require.NoError(w, written.Release(w.Ctx))
	}

	// Either call waits where the other one is before it, in opposite modes and orders.
	held := r.Take("b", rwlock.Write)
	first, one := take(p, both("a", "b"))
	w.UntilWaiting("b", 1)
	second, other := take(q, []rwlock.Want{{Name: "b", Mode: rwlock.Read}, {Name: "a", Mode: rwlock.Write}})
	w.UntilWaiting("a", 1)
	w.Release(held)
	require.NoError(w, first.Result())
	require.NoError(w, one.Release(w.Ctx))
	require.NoError(w, second.Result())
	require.NoError(w, other.Release(w.Ctx))
	for _, p := range []*Process{p, q, r} {
		require.NoError(w, p.Close())
	}
}

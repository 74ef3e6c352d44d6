package reentrant_test

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

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

var (
	manySeeds = flag.Int("many.seeds", 1, "how many seeds TestManyGoroutinesOfOwners tries")
	manyFrom  = flag.Uint64("many.from", 1, "the first of these")
)

// Goroutines of several owners, some with the same owner, take several locks in all ways. No wait lasts for a minute,
// no hold ends that its goroutine has not ended, and nothing is left.
func TestManyGoroutinesOfOwners(t *testing.T) {
	for seed := *manyFrom; seed < *manyFrom+uint64(*manySeeds); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inFakeTime(t, func(w *world) { goroutinesOfOwners(w, seed) })
		})
	}
}

func goroutinesOfOwners(w *world, seed uint64) {
	w.Net.Way = time.Millisecond
	processes := []*process{start(w), start(w)}
	here := []context.Context{reentrant.WithOwner(w.Ctx), reentrant.WithOwner(w.Ctx)} // each owner in one process
	both := reentrant.AsOwner(w.Ctx, reentrant.NewOwner())                            // joins
	var all sync.WaitGroup
	until := time.Now().Add(5 * time.Second)
	for i := range 10 {
		g := &goroutine{w: w, p: processes[i%2], ctx: both, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		if owner := i % 3; owner < len(here) {
			g.p, g.ctx = processes[owner], here[owner]
		}
		all.Go(func() {
			for time.Now().Before(until) {
				g.section()
			}
		})
	}
	all.Wait()
	w.Pass(time.Minute)
	for _, name := range []string{"a", "b", "c", "d"} {
		state := processes[0].inspect(name)
		require.Empty(w, state.Holders, name)
		require.Empty(w, state.Waiters, name)
	}
}

// goroutine works for an owner.
type goroutine struct {
	w   *world
	p   *process
	ctx context.Context
	rng *rand.Rand
}

// section takes some locks, works under them, and releases them.
func (g *goroutine) section() {
	wants := rwlock.Writes("a", "b", "c", "d")
	g.rng.Shuffle(len(wants), func(i, k int) { wants[i], wants[k] = wants[k], wants[i] })
	wants = wants[:1+g.rng.IntN(len(wants))]
	for i, readers := 0, g.rng.IntN(4); i < len(wants); i++ { // of 3: none, some or all
		if g.rng.IntN(3) < readers {
			wants[i].Mode = rwlock.Read
		}
	}
	patience := time.Minute
	if g.rng.IntN(4) == 0 {
		patience = time.Duration(g.rng.IntN(40)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	take := g.p.LockAll
	if g.rng.IntN(5) < 2 {
		take = g.p.TryLockAll
	}
	m, err := take(ctx, wants)
	if err != nil {
		if patience == time.Minute && errors.Is(err, context.DeadlineExceeded) {
			g.w.Errorf("waited for a minute: %v", err)
		}
		time.Sleep(time.Duration(1+g.rng.IntN(5)) * time.Millisecond)
		return
	}
	under := m.Context(g.ctx)
	time.Sleep(time.Duration(g.rng.IntN(20)) * time.Millisecond)
	if err := under.Err(); err != nil {
		g.w.Errorf("ended by another goroutine: %v", context.Cause(under))
	}
	for err = m.Release(g.ctx); errors.Is(err, reentrant.ErrOrder); err = m.Release(g.ctx) {
		time.Sleep(time.Millisecond) // another goroutine of the owner nests in it
	}
	if err != nil {
		g.w.Errorf("release: %v", err)
	}
}

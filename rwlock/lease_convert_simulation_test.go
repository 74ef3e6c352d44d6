package rwlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

var conversionSeeds = flag.Int("rwlock.conversions", testredis.Few(1, 4),
	"how many seeds of upgrades and downgrades are simulated")

// Readers upgrade and writers downgrade beside others who come, give up and are cut off, all at once and with delays
// drawn from a seed. Nobody writes between a read lease and the write lease that it becomes, or the other way round,
// tokens go up, and nobody waits for ever.
func TestSimulatedConversions(t *testing.T) {
	for seed := range *conversionSeeds {
		inFakeTime(t, func(w *world) {
			if seed == 0 {
				w.Mini.CheckScripts()
			}
			w.TTL = 2 * time.Second
			simulateConversions(w, uint64(seed))
		})
	}
}

func simulateConversions(w *world, seed uint64) {
	r := &conversions{w: w, oracle: judge.For(w, fmt.Sprint("seed ", seed)), seed: seed}
	end := time.Now().Add(3 * time.Second)
	var all sync.WaitGroup
	for i := range 4 {
		p, dice := w.Process(), rand.New(rand.NewPCG(seed, uint64(i)))
		p.Link.Delay(time.Duration(dice.IntN(3000)) * time.Microsecond)
		all.Go(func() {
			for time.Now().Before(end) {
				r.play(p, dice)
			}
		})
	}
	all.Wait()
	time.Sleep(2 * w.TTL)
	w.OnlyTokensLeft()
	require.Positive(w, r.done.Load(), "seed %d", seed)
}

// conversions are the upgrades and downgrades of all processes.
type conversions struct {
	w      *world
	oracle *judge.Judge
	seed   uint64
	done   atomic.Int64
}

func (c *conversions) play(p *process, dice *rand.Rand) {
	pause := func(ms int) { time.Sleep(time.Duration(dice.IntN(ms*1000)) * time.Microsecond) }
	pause(10)
	mode := rwlock.Write
	if dice.IntN(3) > 0 {
		mode = rwlock.Read
	}
	ctx, cancel := context.WithTimeout(c.w.Ctx, time.Duration(1+dice.IntN(400))*time.Millisecond)
	defer cancel()
	at := c.oracle.Begin("n")
	acquisition := p.Acquire(ctx, "n", mode)
	if acquisition.Wait(); acquisition.Err != nil {
		c.accept(acquisition.Err)
		return
	}
	lease := acquisition.Lease
	c.oracle.Acquired(at, lease)
	for range dice.IntN(4) {
		pause(10)
		c.convert(lease, time.Duration(dice.IntN(60_000))*time.Microsecond)
	}
	pause(5)
	if err := lease.Release(c.w.Ctx); err != nil {
		c.w.Errorf("seed %d: release: %v", c.seed, err)
	}
}

// convert upgrades a reader or downgrades a writer, or tries to. The lease stands all the time, so that the oracle sees
// a writer that gets in between.
func (c *conversions) convert(lease *rwlock.Lease, wait time.Duration) {
	ctx, giveUp := context.WithTimeout(c.w.Ctx, wait)
	defer giveUp()
	before, convert := lease.Token(), lease.Upgrade
	if lease.Mode() == rwlock.Write {
		convert = lease.Downgrade
	}
	at := c.oracle.Begin("n")
	err := convert(ctx)
	if lease.Err() != nil {
		c.w.Errorf("seed %d: lost: %v", c.seed, lease.Err())
	}
	c.oracle.Sweep()
	switch {
	case err == nil:
		c.done.Add(1)
		c.oracle.Acquired(at, lease)
	case lease.Token() != before:
		c.w.Errorf("seed %d: %v, and another token", c.seed, err)
	default:
		c.accept(err)
	}
}

func (c *conversions) accept(err error) {
	waited := errors.Is(err, rwlock.ErrNotAcquired) || errors.Is(err, rwlock.ErrNoQuorum)
	if !waited && !errors.Is(err, rwlock.ErrUpgrade) {
		c.w.Errorf("seed %d: %v", c.seed, err)
	}
}

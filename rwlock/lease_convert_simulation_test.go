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

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

var conversionSeeds = flag.Int("rwlock.conversions", 4, "how many seeds of upgrades and downgrades are simulated")

// Readers upgrade and writers downgrade beside others who come, give up and are cut off, all at once and with delays
// drawn from a seed. Nobody writes between a read lease and the write lease that it becomes, or the other way round,
// tokens go up, and nobody waits for ever.
func TestSimulatedConversions(t *testing.T) {
	for seed := range *conversionSeeds {
		inFakeTime(t, func(w *world) {
			w.TTL = 2 * time.Second
			simulateConversions(w, uint64(seed))
		})
	}
}

func simulateConversions(w *world, seed uint64) {
	r := &referee{t: w.T, seed: seed}
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
	require.Positive(w, r.converted, "seed %d", seed)
}

// referee knows all leases that are trusted, and when somebody wrote.
type referee struct {
	t    *testing.T
	seed uint64

	mu        sync.Mutex
	in        []*rwlock.Lease
	writes    int // leases that were got for writing, by Lock
	newest    fencing.Token
	converted int
}

func (r *referee) play(p *process, dice *rand.Rand) {
	pause := func(ms int) { time.Sleep(time.Duration(dice.IntN(ms*1000)) * time.Microsecond) }
	pause(10)
	lock, mode := p.Lock, rwlock.Write
	if dice.IntN(3) > 0 {
		lock, mode = p.RLock, rwlock.Read
	}
	ctx, cancel := context.WithTimeout(p.W.Ctx, time.Duration(1+dice.IntN(400))*time.Millisecond)
	defer cancel()
	lease, err := lock(ctx, "n")
	if err != nil {
		r.accept(err)
		return
	}
	r.enter(lease, mode)
	for range dice.IntN(4) {
		pause(10)
		writes := r.written()
		wait, giveUp := context.WithTimeout(p.W.Ctx, time.Duration(dice.IntN(60_000))*time.Microsecond)
		before, convert := lease.Token(), lease.Upgrade
		if lease.Mode() == rwlock.Write {
			convert = lease.Downgrade
		}
		err := convert(wait)
		giveUp()
		r.looksAgain(lease, before, writes, err)
	}
	pause(5)
	r.leave(lease)
	if err := lease.Release(p.W.Ctx); err != nil {
		r.t.Errorf("seed %d: release: %v", r.seed, err)
	}
}

func (r *referee) accept(err error) {
	waited := errors.Is(err, rwlock.ErrNotAcquired) || errors.Is(err, rwlock.ErrNoQuorum)
	if !waited && !errors.Is(err, rwlock.ErrUpgrade) {
		r.t.Errorf("seed %d: %v", r.seed, err)
	}
}

func (r *referee) written() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

func (r *referee) enter(lease *rwlock.Lease, mode rwlock.Mode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in = append(r.in, lease)
	if mode == rwlock.Write {
		r.writes++
	}
	r.check()
	r.sees(lease)
}

// looksAgain follows a conversion, or one that came to nothing.
func (r *referee) looksAgain(lease *rwlock.Lease, before fencing.Token, writes int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if lease.Err() != nil {
		r.t.Errorf("seed %d: lost: %v", r.seed, lease.Err())
	}
	if r.writes != writes {
		r.t.Errorf("seed %d: somebody else wrote meanwhile", r.seed)
	}
	r.check()
	switch {
	case err == nil && lease.Token() <= before:
		r.t.Errorf("seed %d: token %d after %d", r.seed, lease.Token(), before)
	case err == nil:
		r.converted++
		r.sees(lease)
	case lease.Token() != before:
		r.t.Errorf("seed %d: %v, and another token", r.seed, err)
	default:
		r.accept(err)
	}
}

// sees compares a new token with those before.
func (r *referee) sees(lease *rwlock.Lease) {
	if lease.Mode() == rwlock.Write && lease.Token() <= r.newest {
		r.t.Errorf("seed %d: token %d, and %d was there", r.seed, lease.Token(), r.newest)
	}
	r.newest = max(r.newest, lease.Token())
}

// check looks at all who are in.
func (r *referee) check() {
	for _, lease := range r.in {
		if lease.Mode() == rwlock.Write && len(r.in) > 1 {
			r.t.Errorf("seed %d: %d beside a writer: %s", r.seed, len(r.in)-1, fmt.Sprint(lease.Token()))
		}
	}
}

func (r *referee) leave(lease *rwlock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.in {
		if other == lease {
			r.in = append(r.in[:i], r.in[i+1:]...)
			return
		}
	}
}

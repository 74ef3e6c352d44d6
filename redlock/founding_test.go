package redlock_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

var foundings = flag.Int("redlock.foundings", testredis.Few(1, 10), "how many first starts of a set are simulated")

// TestSimulatedFoundings has processes start at about the same time over masters without markers, each with the list in
// another order, and soon with two masters only. Requests that give markers are late, and a master loses its data, or
// all do, one after the other. Two never hold the lock at once, and in the end somebody who starts gets it.
func TestSimulatedFoundings(t *testing.T) {
	for seed := range *foundings {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			testkit.InFakeTime(t, 3, func(w *world) { found(w, rand.New(rand.NewPCG(uint64(seed), 1))) })
		})
	}
}

func found(w *world, rng *rand.Rand) {
	w.Fresh, w.TTL = true, 3*time.Second
	if rng.IntN(2) == 0 {
		for _, m := range w.Minis {
			m.NewProcess() // they show their run ids
		}
	}
	w.Net.Tuned = rng.IntN(2) == 0
	w.Net.Way = time.Duration(1+rng.IntN(40)) * time.Millisecond
	oracle := judge.For(w, "founding")
	over := time.Now().Add(4 * w.TTL)
	var work sync.WaitGroup
	for range 3 + rng.IntN(3) {
		p, rng := w.Part(rng.Perm(3)...).Connect(w.Net), rand.New(rand.NewPCG(rng.Uint64(), 2))
		for _, link := range p.Links {
			if rng.IntN(3) == 0 {
				link.OnCommand(late(rand.New(rand.NewPCG(rng.Uint64(), 3))))
			}
		}
		p.Start(redlock.WithNodeTimeout(time.Duration(100+rng.IntN(2000)) * time.Millisecond))
		time.Sleep(upTo(rng, 300*time.Millisecond))
		cut, after := rng.IntN(3), upTo(rng, w.TTL)
		work.Go(func() {
			time.AfterFunc(after, func() { p.CutOff(cut) }) // so a lease stands on two masters, and one is lost
			for time.Now().Before(over) {
				at := oracle.Begin("x")
				lease, err := p.Lock(w.Soon(upTo(rng, 4*time.Second)), "x", rwlock.WithTTL(upTo(rng, w.TTL)+100*time.Millisecond))
				if err != nil {
					continue
				}
				oracle.Acquired(at, lease)
				time.Sleep(upTo(rng, w.TTL))
				oracle.Sweep()
				_ = lease.Release(w.Ctx)
			}
		})
	}
	lost := rng.Perm(3)[:1+2*rng.IntN(2)]
	for _, i := range lost {
		time.Sleep(upTo(rng, 3*w.TTL/2))
		if m := w.Minis[i]; rng.IntN(2) == 0 {
			m.FlushAll()
		} else {
			m.Crash()
			time.AfterFunc(upTo(rng, time.Second), m.Recover)
		}
	}
	work.Wait()
	time.Sleep(3 * w.TTL)
	w.Process().Section("x")
	w.Logf("%s", oracle.Summary())
}

// late has requests that give markers wait, each for its time.
func late(rng *rand.Rand) func(cmd []string) {
	var mu sync.Mutex
	return func(cmd []string) {
		if !testredis.Named("EVAL", "EVALSHA")(cmd) || testkit.ScriptOf(cmd) != scripts.Marker || cmd[4] == "look" {
			return
		}
		mu.Lock()
		wait := upTo(rng, 3*time.Second)
		mu.Unlock()
		time.Sleep(wait)
	}
}

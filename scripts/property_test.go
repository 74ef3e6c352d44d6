package scripts_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

var (
	seed   = flag.Uint64("seed", 0, "the only seed for the random sequences")
	random = flag.Int("seeds", 0, "draw so many seeds for the random sequences; 0 takes a few that are always the same")
)

// Random requests of a few processes, with time that goes by between them, are answered as the model says, and leave
// what it says. Every request may come twice. One master, and one of several.
func TestRandomSequencesKeepToTheModel(t *testing.T) {
	for _, quorum := range []bool{false, true} {
		t.Run(fmt.Sprint("quorum=", quorum), func(t *testing.T) {
			for _, s := range seeds(6) {
				t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
					inFakeTime(t, func(e *env) { playRandomly(e, draws(s), quorum, 150) })
				})
			}
			onServers(t, func(e *env) {
				for _, s := range seeds(3) {
					e.flushAll()
					e.t.Logf("-seed=%d", s)
					playRandomly(e, draws(s), quorum, 150)
				}
			})
		})
	}
}

// The same where the requests name the lock alone.
func TestRandomSequencesThatNameTheLockAloneKeepToTheModel(t *testing.T) {
	everywhere(t, func(e *env) {
		e.alone = true
		for _, s := range seeds(4) {
			e.flushAll()
			e.t.Logf("-seed=%d", s)
			playRandomly(e, draws(s), false, 150)
		}
	})
}

// seeds returns which sequences are played: the same n in every run, unless others are asked for.
func seeds(n int) (all []uint64) {
	switch {
	case *seed != 0:
		return []uint64{*seed}
	case *random == 0:
		for i := range n {
			all = append(all, uint64(i+1))
		}
		return all
	}
	for range *random {
		all = append(all, rand.Uint64())
	}
	return all
}

func draws(seed uint64) func(n int) int { return rand.New(rand.NewPCG(seed, 0)).IntN }

// The same, driven by bytes instead of a generator.
func FuzzSequences(f *testing.F) {
	f.Add([]byte("\x00acquire, queue, release"), false)
	f.Add([]byte("readers come and go, some are dead"), false)
	f.Add([]byte("\x07\x01\x03several masters, raise, yield and regain"), true)
	for i := range uint64(4) {
		long, next := make([]byte, 300), draws(i)
		for j := range long {
			long[j] = byte(next(256))
		}
		f.Add(long, i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, script []byte, quorum bool) {
		inFakeTime(t, func(e *env) {
			next := func(n int) int {
				if len(script) == 0 {
					return 0
				}
				b := int(script[0])
				script = script[1:]
				return b % n
			}
			playRandomly(e, next, quorum, min(len(script)/4, 100))
		})
	})
}

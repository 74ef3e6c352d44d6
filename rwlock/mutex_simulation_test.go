package rwlock_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

var (
	sharedSeeds = flag.Int("rwlock.seeds", testredis.Few(1, 8), "how many seeds of shared holds are simulated")
	sharedFrom  = flag.Int("rwlock.from", 1, "the first of them")
)

// The goroutines of some processes take a lock in every way, give up in every moment, lose messages and links, and
// close their lockers. A plain oracle looks at who is in: nobody beside a writer, in a process whatever happens and
// among processes as long as leases are trusted, and tokens that go up.
func TestSimulatedSharedHolds(t *testing.T) {
	for seed := *sharedFrom; seed < *sharedFrom+*sharedSeeds; seed++ {
		subtestInFakeTime(t, fmt.Sprint("seed ", seed), func(w *world) {
			if seed == *sharedFrom {
				w.Mini.CheckScripts()
			}
			simulateSharedHolds(w, uint64(seed))
		})
	}
}

// The same on a server with a durable log, which may stand still or be replaced by one that has what the log had.
func TestSimulatedSharedHoldsOnADurableLog(t *testing.T) {
	t.Parallel() // it computes while others wait
	for seed := *sharedFrom; seed < *sharedFrom+(*sharedSeeds+1)/2; seed++ {
		subtestInFakeTime(t, fmt.Sprint("seed ", seed), func(w *world) {
			w.Opts = append(w.Opts, rwlock.WithConfirmedHandOff())
			dice := rand.New(rand.NewPCG(uint64(seed), 1<<32))
			var log sync.WaitGroup
			end := time.Now().Add(simulatedFor)
			log.Go(func() { stallCommits(w, dice, end) })
			simulateSharedHolds(w, uint64(seed))
			log.Wait()
		})
	}
}

// stallCommits has the log stand still from time to time, and lose every other time what it had not got.
func stallCommits(w *world, dice *rand.Rand, end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(time.Duration(dice.IntN(1500)) * time.Millisecond)
		w.Mini.StallCommits()
		time.Sleep(time.Duration(dice.IntN(1000)) * time.Millisecond)
		if dice.IntN(2) == 0 {
			w.Mini.LoseCommits()
		} else {
			w.Mini.ResumeCommits()
		}
	}
}

const (
	simulatedFor = 20 * time.Second
	simulatedTTL = 2 * time.Second
)

func simulateSharedHolds(w *world, seed uint64) {
	o := judge.For(w, fmt.Sprint("seed ", seed))
	var conversions atomic.Int64
	end := time.Now().Add(simulatedFor)
	var all sync.WaitGroup
	for i := range 3 {
		s := &simulated{w: w, o: o, seed: seed, conversions: &conversions, dice: rand.New(rand.NewPCG(seed, uint64(i)))}
		s.opts = []rwlock.Option{rwlock.WithTTL(simulatedTTL)}
		if s.dice.IntN(2) == 0 {
			s.opts = append(s.opts, rwlock.WithLinger(time.Duration(1+s.dice.IntN(3000))*time.Millisecond))
		}
		if i == int(seed%3) {
			s.opts = append(s.opts, rwlock.WithBackgroundRelease())
		}
		s.start()
		for g := range 4 {
			dice := rand.New(rand.NewPCG(seed, uint64(100*i+g+10)))
			all.Go(func() {
				for time.Now().Before(end) {
					s.step(dice)
				}
			})
		}
		all.Go(func() { s.trouble(end) })
	}
	all.Wait()
	time.Sleep(2*simulatedTTL + 3*time.Second) // all that was lost or lingers has ended
	// What expired behind a cut link goes with the next one who comes; nothing keeps that one out.
	require.NoError(w, w.Process().TryOnce("n"))
	w.OnlyTokensLeft()
	w.Logf("%s, %d of them conversions", o.Summary(), conversions.Load())
	require.Greater(w, o.Grants()-int(conversions.Load()), 100)
	require.Greater(w, conversions.Load(), int64(10))
}

// simulated is a process of a simulation.
type simulated struct {
	w    *world
	o    *judge.Judge
	seed uint64
	dice *rand.Rand // of its troubles
	opts []rwlock.Option

	conversions *atomic.Int64 // of all processes

	mu     sync.Mutex
	p      *process
	inside [2]int // readers, writers
}

func (s *simulated) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p, s.inside = s.w.Process(s.opts...), [2]int{}
}

func (s *simulated) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p
}

// trouble strikes the process from time to time.
func (s *simulated) trouble(end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(time.Duration(s.dice.IntN(3000)) * time.Millisecond)
		p := s.process()
		switch s.dice.IntN(7) {
		case 0, 1:
			var n atomic.Int32
			p.Link.DropPushes(func([]string) bool { return n.Add(1)%3 > 0 })
		case 2:
			p.Link.DropPushes(func(push []string) bool { return strings.HasSuffix(push[2], "wanted") })
		case 3:
			p.Link.DropPushes(nil)
		case 4:
			p.Link.Cut()
		case 5:
			p.Link.Blackhole(testredis.Both)
			time.Sleep(time.Duration(s.dice.IntN(2 * int(simulatedTTL))))
			p.Link.Restore()
			p.Link.Cut()
		case 6:
			_ = p.Close()
			s.start()
		}
	}
	s.process().Link.DropPushes(nil)
}

func (s *simulated) step(dice *rand.Rand) {
	time.Sleep(time.Duration(dice.IntN(20)) * time.Millisecond)
	p := s.process()
	mu := p.RWMutex("n")
	lock, mode := mu.Lock, rwlock.Write
	switch dice.IntN(6) {
	case 0:
		lock = mu.TryLock
	case 1, 2:
		lock, mode = mu.RLock, rwlock.Read
	case 3:
		lock, mode = mu.TryRLock, rwlock.Read
	}
	ctx := s.w.Soon(time.Duration(dice.IntN(3000)) * time.Millisecond)
	at := s.o.Begin("n")
	if err := lock(ctx); err != nil {
		waited := errors.Is(err, rwlock.ErrNotAcquired) || errors.Is(err, rwlock.ErrNoQuorum)
		if !waited && !errors.Is(err, rwlock.ErrClosed) {
			s.w.Errorf("seed %d: %v", s.seed, err)
		}
		return
	}
	v := judge.NewVisit(mu, "n", mode)
	s.goIn(p, mode, +1)
	s.o.Acquired(at, v)
	for range max(0, dice.IntN(6)-3) {
		time.Sleep(time.Duration(dice.IntN(10)) * time.Millisecond)
		s.convert(p, mu, v, dice)
	}
	time.Sleep(time.Duration(dice.IntN(30)*dice.IntN(30)) * time.Millisecond / 10)
	s.o.Sweep()
	s.goIn(p, v.Mode(), -1)
	if err := v.Leave(s.w.Ctx, mu); err != nil && !errors.Is(err, rwlock.ErrLost) && !errors.Is(err, rwlock.ErrNoQuorum) {
		s.w.Errorf("seed %d: unlock: %v", s.seed, err)
	}
}

// goIn counts who is in, in this process, whether or not the lease is trusted.
func (s *simulated) goIn(p *process, mode rwlock.Mode, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p != s.p {
		return // it was closed meanwhile
	}
	s.inside[mode-rwlock.Read] += by
	if readers, writers := s.inside[0], s.inside[1]; writers > 1 || writers == 1 && readers > 0 {
		s.w.Errorf("seed %d: %d readers and %d writers in a process", s.seed, readers, writers)
	}
}

func (s *simulated) convert(p *process, mu *rwlock.RWMutex, v *judge.Visit, dice *rand.Rand) {
	ctx := s.w.Soon(time.Duration(dice.IntN(1000)) * time.Millisecond)
	if v.Mode() == rwlock.Write {
		at := s.o.Begin("n")
		s.becomes(p, v, rwlock.Read) // before the call: others may enter before it returns
		if err := mu.Downgrade(ctx); err != nil {
			s.becomes(p, v, rwlock.Write)
			s.acceptConversion(err)
		} else {
			s.converted(at, v, mu.Token())
		}
		return
	}
	upgrade := mu.Upgrade
	if dice.IntN(3) == 0 {
		upgrade = mu.TryUpgrade
	}
	at := s.o.Begin("n")
	if err := upgrade(ctx); err != nil {
		s.acceptConversion(err)
		return
	}
	s.becomes(p, v, rwlock.Write)
	s.converted(at, v, mu.Token())
}

func (s *simulated) becomes(p *process, v *judge.Visit, mode rwlock.Mode) {
	s.goIn(p, v.Mode(), -1)
	s.goIn(p, mode, +1)
	fence := v.Fence()
	fence.Mode = mode
	v.Is(fence)
}

// converted follows a conversion, which has a token of its own.
func (s *simulated) converted(at judge.Attempt, v *judge.Visit, token fencing.Token) {
	s.conversions.Add(1)
	fence := v.Fence()
	fence.Token = token
	v.Is(fence)
	s.o.Acquired(at, v)
}

func (s *simulated) acceptConversion(err error) {
	for _, ordinary := range []error{
		rwlock.ErrNotAcquired, rwlock.ErrNoQuorum, rwlock.ErrUpgrade, rwlock.ErrLost, rwlock.ErrClosed,
	} {
		if errors.Is(err, ordinary) {
			return
		}
	}
	s.w.Errorf("seed %d: conversion: %v", s.seed, err)
}

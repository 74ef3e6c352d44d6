package rwlock_test

import (
	"context"
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
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

var (
	cohortSeeds = flag.Int("rwlock.seeds", 8, "how many seeds of cohorts are simulated")
	cohortFrom  = flag.Int("rwlock.from", 1, "the first of them")
)

// The goroutines of some processes take a lock in every way, give up in every moment, lose messages and links, and
// close their lockers. A plain oracle looks at who is in: nobody beside a writer, in a process whatever happens and
// among processes as long as leases are trusted, and tokens that go up.
func TestSimulatedCohorts(t *testing.T) {
	for seed := *cohortFrom; seed < *cohortFrom+*cohortSeeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inFakeTime(t, func(w *world) { simulateCohorts(w, uint64(seed)) })
		})
	}
}

const (
	simulatedFor = 20 * time.Second
	simulatedTTL = 2 * time.Second
)

func simulateCohorts(w *world, seed uint64) {
	o := &oracle{t: w.T, seed: seed}
	end := time.Now().Add(simulatedFor)
	var all sync.WaitGroup
	for i := range 3 {
		s := &simulated{w: w, o: o, index: i, dice: rand.New(rand.NewPCG(seed, uint64(i)))}
		s.opts = []rwlock.Option{rwlock.WithTTL(simulatedTTL)}
		if s.dice.IntN(2) == 0 {
			s.opts = append(s.opts, rwlock.WithLinger(time.Duration(1+s.dice.IntN(3000))*time.Millisecond))
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
	w.Logf("%d sections, %d conversions, %d lost", o.sections, o.conversions, o.lost)
	require.Greater(w, o.sections, 100)
	require.Greater(w, o.conversions, 10)
}

// simulated is a process of a simulation.
type simulated struct {
	w     *world
	o     *oracle
	index int
	dice  *rand.Rand // of its troubles
	opts  []rwlock.Option

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
	ctx, cancel := context.WithTimeout(s.w.Ctx, time.Duration(dice.IntN(3000))*time.Millisecond)
	defer cancel()
	before := s.o.begin(mode)
	if err := lock(ctx); err != nil {
		waited := errors.Is(err, rwlock.ErrNotAcquired) || errors.Is(err, rwlock.ErrNoQuorum)
		if !waited && !errors.Is(err, rwlock.ErrClosed) {
			s.w.Errorf("seed %d: %v", s.o.seed, err)
		}
		return
	}
	v := &visit{process: s.index, mode: mode, token: mu.Token(), ctx: mu.Context(context.Background())}
	s.goIn(p, mode, +1)
	s.o.enter(v, before)
	for range max(0, dice.IntN(6)-3) {
		time.Sleep(time.Duration(dice.IntN(10)) * time.Millisecond)
		s.convert(p, mu, v, dice)
	}
	time.Sleep(time.Duration(dice.IntN(30)*dice.IntN(30)) * time.Millisecond / 10)
	s.o.leave(v)
	s.goIn(p, v.mode, -1)
	unlock := mu.Unlock
	if v.mode == rwlock.Read {
		unlock = mu.RUnlock
	}
	if err := unlock(s.w.Ctx); err != nil && !errors.Is(err, rwlock.ErrLost) && !errors.Is(err, rwlock.ErrNoQuorum) {
		s.w.Errorf("seed %d: unlock: %v", s.o.seed, err)
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
		s.w.Errorf("seed %d: %d readers and %d writers in a process", s.o.seed, readers, writers)
	}
}

// visit is one who is in. Its mode and token change with a conversion.
type visit struct {
	process int
	mode    rwlock.Mode
	token   fencing.Token
	ctx     context.Context
}

// oracle knows who is in, of all processes.
type oracle struct {
	t    *testing.T
	seed uint64

	mu                  sync.Mutex
	in                  []*visit
	newest, newestWrite fencing.Token
	sections, lost      int
	conversions         int
}

// begin returns what a token must be larger than that is got from now on.
func (o *oracle) begin(mode rwlock.Mode) fencing.Token {
	o.mu.Lock()
	defer o.mu.Unlock()
	if mode == rwlock.Read {
		return o.newestWrite
	}
	return o.newest
}

func (o *oracle) enter(v *visit, before fencing.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sections++
	if v.token <= before {
		o.t.Errorf("seed %d: process %d got token %d for %s after %d", o.seed, v.process, v.token, v.mode, before)
	}
	if v.ctx.Err() != nil {
		o.lost++
		return
	}
	o.in = append(o.in, v)
	o.sees(v)
}

// sees compares one who is in, and trusted, with the others, under mu.
func (o *oracle) sees(v *visit) {
	if v.ctx.Err() != nil {
		return
	}
	for _, other := range o.in {
		if other != v && other.ctx.Err() == nil && (v.mode == rwlock.Write || other.mode == rwlock.Write) {
			o.t.Errorf("seed %d: process %d is in for %s with %d, and process %d for %s with %d",
				o.seed, other.process, other.mode, other.token, v.process, v.mode, v.token)
		}
	}
	if o.newest = max(o.newest, v.token); v.mode == rwlock.Write {
		o.newestWrite = max(o.newestWrite, v.token)
	}
}

func (o *oracle) leave(v *visit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v.ctx.Err() != nil {
		o.lost++
	}
	for i, other := range o.in {
		if other == v {
			o.in = append(o.in[:i], o.in[i+1:]...)
			return
		}
	}
}

// convert has one who is in upgrade or downgrade, or try to. It stays in all the time, so the oracle sees whoever gets
// in between.
func (s *simulated) convert(p *process, mu *rwlock.RWMutex, v *visit, dice *rand.Rand) {
	ctx, cancel := context.WithTimeout(s.w.Ctx, time.Duration(dice.IntN(1000))*time.Millisecond)
	defer cancel()
	if v.mode == rwlock.Write {
		before := s.o.begin(rwlock.Read)
		s.becomes(p, v, rwlock.Read) // before the call: others may enter before it returns
		if err := mu.Downgrade(ctx); err != nil {
			s.becomes(p, v, rwlock.Write)
			s.acceptConversion(err)
		} else {
			s.o.converted(v, mu.Token(), before)
		}
		return
	}
	upgrade := mu.Upgrade
	if dice.IntN(3) == 0 {
		upgrade = mu.TryUpgrade
	}
	before := s.o.begin(rwlock.Write)
	if err := upgrade(ctx); err != nil {
		s.acceptConversion(err)
		return
	}
	s.becomes(p, v, rwlock.Write)
	s.o.converted(v, mu.Token(), before)
}

func (s *simulated) becomes(p *process, v *visit, mode rwlock.Mode) {
	s.goIn(p, v.mode, -1)
	s.goIn(p, mode, +1)
	s.o.becomes(v, mode)
}

func (s *simulated) acceptConversion(err error) {
	for _, ordinary := range []error{
		rwlock.ErrNotAcquired, rwlock.ErrNoQuorum, rwlock.ErrUpgrade, rwlock.ErrLost, rwlock.ErrClosed,
	} {
		if errors.Is(err, ordinary) {
			return
		}
	}
	s.w.Errorf("seed %d: conversion: %v", s.o.seed, err)
}

func (o *oracle) becomes(v *visit, mode rwlock.Mode) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v.mode = mode
}

// converted follows a conversion: a larger token, and nobody beside a writer.
func (o *oracle) converted(v *visit, token, before fencing.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conversions++
	if token <= max(before, v.token) {
		o.t.Errorf("seed %d: process %d was converted for %s to %d after %d and %d",
			o.seed, v.process, v.mode, token, before, v.token)
	}
	v.token = token
	o.sees(v)
}

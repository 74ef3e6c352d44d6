package rwlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

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

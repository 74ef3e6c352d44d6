package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/lab/peer"
)

// The workload that compares lock libraries: each goroutine takes the lock of a chain of values, reads the last value,
// works, looks whether the lock is still held, and writes a new value behind it. At the end each acknowledged value has
// to be in the chain that leads to the last one.
const (
	workBefore = 50 * time.Millisecond // at most, between the read and the look
	workAfter  = 50 * time.Millisecond // at most, between the look and the write
	longWork   = 40                    // one section of so many works for up to one and a half TTLs before the look
	peerTTL    = 2 * time.Second       // of every library
	again      = 50 * time.Millisecond // after an acquisition that failed
)

// addToChains adds values until all faults have ended.
func (w *worker) addToChains(ctx context.Context) error {
	lib, err := libraryNamed(w.cfg.Library)
	if err != nil {
		return err
	}
	options := peer.Options{TTL: w.cfg.TTL, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		return w.connect(ctx, addr, &net.Dialer{Timeout: dialTimeout}, nil)
	}}
	for _, master := range w.cfg.Masters {
		options.Addrs = append(options.Addrs, master.Addrs...)
	}
	locks, err := lib.Open(options)
	for err != nil {
		if sleep(ctx, again); ctx.Err() != nil {
			return nil
		}
		locks, err = lib.Open(options)
	}
	keeper := &keeper{ttl: w.cfg.TTL}
	var all sync.WaitGroup
	for id := range w.cfg.Workers {
		registers, err := openRegisters(w.cfg.Register)
		if err != nil {
			return err
		}
		a := &adder{
			w: w, id: id, locks: locks, keeper: keeper, registers: registers,
			rng: rand.New(rand.NewPCG(w.cfg.Seed, uint64(w.cfg.Process*1000+id))),
		}
		all.Go(func() {
			for ctx.Err() == nil {
				a.add(ctx)
			}
		})
	}
	all.Wait()
	keeper.all.Wait()
	return locks.Close()
}

// dialTimeout is the default of go-redis and of rueidis.
const dialTimeout = 5 * time.Second

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// adder is one goroutine of a worker that adds values.
type adder struct {
	w      *worker
	id     int
	added  uint64
	rng    *rand.Rand
	locks  peer.Peer
	keeper *keeper

	registers *section
}

// add is one section.
func (a *adder) add(ctx context.Context) {
	name := fmt.Sprint("n", a.rng.IntN(a.w.cfg.Names))
	s, hold := a.lock(ctx, name)
	if hold == nil {
		return
	}
	a.added++
	a.registers.do(&s, hold.value, 0)
	work := a.upTo(workBefore)
	if a.rng.IntN(longWork) == 0 {
		work = a.upTo(a.w.cfg.TTL * 3 / 2)
	}
	time.Sleep(work)
	s.End = "lost"
	if look(&s, hold) {
		s.End = "released"
		time.Sleep(a.upTo(workAfter))
		a.registers.do(&s, hold.value, uint64(a.w.cfg.Process)*1e9+uint64(a.id)*1e7+a.added)
		look(&s, hold)
	}
	if err := hold.Release(context.Background()); err != nil {
		s.Err = err.Error()
	}
	s.Ended = now()
	a.w.record(history.Event{Span: &s})
}

// lock tries until it has the lock. The hold is nil if ctx has ended before.
func (a *adder) lock(ctx context.Context, name string) (history.Span, *hold) {
	s := history.Span{
		Process: a.w.cfg.Process, Slot: a.w.cfg.Slot, Worker: a.id, Name: name, Form: a.w.cfg.Library, Write: true,
		Owner: fmt.Sprintf("%d.%d.%d", a.w.cfg.Process, a.id, a.added), Called: now(),
	}
	for {
		taken, err := a.locks.Lock(ctx, name)
		if err == nil {
			hold := a.keeper.keep(taken)
			s.Granted, s.Token = now(), uint64(hold.token)
			look(&s, hold)
			return s, hold
		}
		if ctx.Err() != nil {
			a.w.record(history.Event{Failure: &history.Failure{
				Process: s.Process, Worker: s.Worker, Name: name, Form: s.Form, Write: true, Called: s.Called, Ended: now(),
				Cause: "the run has ended", Err: err.Error(),
			}})
			return s, nil
		}
		sleep(ctx, again)
	}
}

// look records that the lock was still held just before the look, if the library says so.
func look(s *history.Span, hold *hold) bool {
	at := now()
	if !hold.Held(context.Background()) {
		return false
	}
	s.Last = at
	return true
}

func (a *adder) upTo(d time.Duration) time.Duration { return time.Duration(a.rng.Int64N(int64(d))) }

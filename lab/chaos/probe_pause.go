package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// shortTTL is the TTL of locks that end in a pause.
const shortTTL = 100 * time.Millisecond

// leaseAfterPause uses a lease that has ended in a pause.
func (p *probe) leaseAfterPause() {
	lease := p.waitFor(p.name("y"), rwlock.WithTTL(shortTTL), rwlock.WithoutRenewal())
	if lease == nil {
		return
	}
	if over := p.w.pauser.outlast(shortTTL); over && p.rng.IntN(2) == 0 {
		p.useless(lease, "that ended in a pause")
	} else if over {
		p.ask(lease.Name(), "Release of a lease that ended in a pause").never("nil").got(lease.Release(context.Background()))
	}
	_ = lease.Release(context.Background())
}

// readersAfterPause unlocks an RWMutex of several readers that was lost in a pause.
func (p *probe) readersAfterPause() {
	name := p.name("q")
	mu := p.locker.RWMutex(name, rwlock.WithTTL(shortTTL))
	ctx, cancel := p.longer()
	defer cancel()
	readers := 0
	for readers < 3 && mu.RLock(ctx) == nil {
		readers++
	}
	if readers == 0 {
		return
	}
	over := p.w.pauser.outlast(shortTTL)
	for range readers {
		q := p.ask(name, "RUnlock of one of several readers after a pause")
		err := mu.RUnlock(ctx)
		if over {
			q.never("nil").got(err)
		}
	}
}

// lingerOverPause takes an RWMutex that lingered when its process was stopped.
func (p *probe) lingerOverPause() {
	name := p.name("k")
	mu := p.locker.RWMutex(name, rwlock.WithTTL(shortTTL), rwlock.WithLinger(time.Second))
	ctx, cancel := p.longer()
	defer cancel()
	if mu.Lock(ctx) != nil {
		return
	}
	before := mu.Token()
	if mu.Unlock(ctx) != nil {
		return
	}
	if !p.w.pauser.outlast(shortTTL) {
		return
	}
	at := time.Now()
	q := p.ask(name, "Lock of an RWMutex whose lock has ended while it lingered")
	if mu.Lock(ctx) != nil {
		return
	}
	token, err := mu.Token(), mu.Unlock(ctx)
	if errors.Is(err, rwlock.ErrLost) && token == before+1 && time.Since(at) < 5*time.Millisecond {
		q.never("nil").got(nil)
	}
}

// neverBegan records a section that was let in after its lock had been lost, which was known at that time.
func (p *probe) neverBegan(mu *rwlock.RWMutex, name string, held context.Context, at time.Time) {
	if held.Err() == nil {
		return
	}
	if lost := lostAt(p.locker, name, mu.Token()); !lost.IsZero() && lost.Before(at) {
		p.ask(name, "a section that follows the loss of its lock").never("nil").got(nil)
	}
}

// handOnAfterPause has a goroutine wait for another goroutine of its process, which loses the lock in a pause and keeps
// the RWMutex for a while.
func (p *probe) handOnAfterPause() {
	name := p.name("h")
	mu := p.locker.RWMutex(name, rwlock.WithTTL(shortTTL))
	ctx, cancel := p.longer()
	defer cancel()
	if mu.Lock(ctx) != nil {
		return
	}
	unlocks, over := make(chan time.Time, 1), make(chan struct{})
	go func() {
		defer close(over)
		if mu.Lock(ctx) == nil {
			held := mu.Context(context.Background())
			p.neverBegan(mu, name, held, <-unlocks)
			_ = mu.Unlock(ctx)
		}
	}()
	if !p.await(name, 2) {
		unlocks <- time.Time{}
	} else {
		p.w.pauser.outlast(shortTTL)
		time.Sleep(10 * time.Millisecond)
		unlocks <- time.Now()
	}
	_ = mu.Unlock(ctx)
	<-over
}

// shorterReader has a reader come and go at the side of a reader with a longer lease, which still keeps writers out.
func (p *probe) shorterReader() {
	name := p.name("t")
	ctx, cancel := p.longer()
	defer cancel()
	longer, err := p.locker.RLock(ctx, name, rwlock.WithTTL(p.w.cfg.Longest), rwlock.WithoutRenewal())
	if err != nil {
		return
	}
	defer func() { _ = longer.Release(ctx) }()
	shorter, err := p.other.RLock(ctx, name, rwlock.WithTTL(shortTTL), rwlock.WithoutRenewal())
	if err != nil {
		return
	}
	time.Sleep(shortTTL + p.millis(50))
	q := p.ask(name, "TryLock beside a reader whose lease is longer")
	writer, err := p.other.TryLock(ctx, name)
	q.unless(longer.Err() != nil).gotHold(writer, err, "contended")
	_ = shorter.Release(ctx)
}

// minimum releases a lock before its minimum is over, and looks how long it is trusted.
func (p *probe) minimum() {
	name := p.name("u")
	ctx, cancel := p.longer()
	defer cancel()
	least := (20*time.Millisecond + p.millis(int(p.w.cfg.TTL/time.Millisecond))).Truncate(time.Millisecond)
	began := time.Now()
	options := []rwlock.LockOption{rwlock.WithMinHold(least), rwlock.WithTTL(shortTTL), rwlock.WithoutRenewal()}
	lease, err := p.locker.TryLock(ctx, name, options...) // a lock that is handed over has terms of its own
	if err != nil {
		return
	}
	if left := time.Until(lease.Deadline()); left > shortTTL {
		p.ask(name, fmt.Sprintf("Deadline of a lease with a minimum of %v: %v", least, left)).never("nil").got(nil)
	}
	if p.rng.IntN(2) == 0 {
		_ = lease.Release(ctx)
	}
	time.Sleep(p.millis(int(least / time.Millisecond)))
	q := p.ask(name, "TryLock before the minimum is over")
	rival, err := p.other.TryLock(ctx, name)
	q.unless(time.Since(began) > least*98/100-2*time.Millisecond).gotHold(rival, err, "contended")
	_ = lease.Release(ctx)
}

// minimumOnce converts a lease shortly before its minimum is over, which begins none.
func (p *probe) minimumOnce() {
	if p.rng.IntN(4) > 0 {
		return
	}
	const least = 1500 * time.Millisecond
	name := p.name("v")
	ctx, cancel := context.WithTimeout(context.Background(), 2*least+4*p.w.cfg.TTL)
	defer cancel()
	lease, err := p.locker.RLock(ctx, name, rwlock.WithMinHold(least))
	if err != nil {
		return
	}
	time.Sleep(least)
	if lease.Upgrade(ctx) != nil || lease.Release(ctx) != nil {
		_ = lease.Release(ctx)
		return
	}
	q := p.ask(name, "Lock after the minimum of a lease that was converted").within(least * 3 / 4)
	next, err := p.other.Lock(ctx, name)
	q.gotHold(next, err, "nil")
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/rwlock"
)

// lostAt returns when the lock was lost under which a token was granted, or the zero time.
func lostAt(locker *rwlock.Locker, name string, token fencing.Token) time.Time {
	for _, loss := range locker.Losses() { // an RWMutex names the last token of its block
		if loss.Name == name && loss.Token >= token {
			return loss.At
		}
	}
	return time.Time{}
}

// neverLost records a write lock that had been lost for a while when the call returned it.
func (c *client) neverLost(s *history.Span, held context.Context) {
	if c.locker == nil || !s.Write || !errors.Is(context.Cause(held), rwlock.ErrLost) {
		return
	}
	at := time.Now()
	if lost := lostAt(c.locker, s.Name, fencing.Token(s.Token)); !lost.IsZero() && at.Sub(lost) > 2*stillness {
		p := &probe{client: c}
		p.ask(s.Name, fmt.Sprintf("%s of a lock that was lost %v before", s.Form, at.Sub(lost))).local().got(nil, "lost")
	}
}

// inside counts the goroutines of this process in the sections of an RWMutex: writers in the upper half, readers in
// the lower one.
type inside struct{ count atomic.Int64 }

const writer, reader = int64(1) << 32, int64(1)

// enter counts one more, and reports whether it may be there.
func (i *inside) enter(mode int64) bool {
	n := i.count.Add(mode)
	return n < writer || n == writer
}

func (i *inside) leave(mode int64) { i.count.Add(-mode) }

// crowd has many goroutines use one RWMutex in short sections, with little or much time, while another locker wants it
// now and then. No two of them may be inside together, under any fault, and none may be left behind.
func (p *probe) crowd() {
	name := p.name("m")
	var options []rwlock.MutexOption
	switch p.rng.IntN(4) {
	case 0:
		options = append(options, rwlock.WithLinger(time.Millisecond+p.millis(20)))
	case 1:
		options = append(options, rwlock.WithMaxWait(time.Millisecond+p.millis(50)))
	}
	mu, all := p.locker.RWMutex(name, options...), sync.WaitGroup{}
	until := time.Now().Add(50*time.Millisecond + p.millis(250))
	within := &inside{}
	for range 3 + p.rng.IntN(8) {
		rng := rand.New(rand.NewPCG(p.rng.Uint64(), 3))
		all.Go(func() {
			for time.Now().Before(until) {
				p.oneOfCrowd(mu, name, rng, within)
			}
		})
	}
	if p.rng.IntN(2) == 0 {
		all.Go(func() {
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				if lease, err := p.other.Lock(ctx, name); err == nil {
					_ = lease.Release(context.Background())
				}
				cancel()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	all.Wait()
	if len(options) == 0 {
		ctx, cancel := p.longer()
		defer cancel()
		if p.ask(name, "Lock after a crowd").got(mu.Lock(ctx), "nil") {
			p.ask(name, "Unlock after a crowd").got(mu.Unlock(ctx), "nil")
		}
	}
	if lease := p.waitFor(name); lease != nil {
		p.give(lease)
	}
}

// oneOfCrowd is one section.
func (p *probe) oneOfCrowd(mu *rwlock.RWMutex, name string, rng *rand.Rand, within *inside) {
	ctx, cancel := context.WithTimeout(context.Background(), p.w.cfg.TTL)
	defer cancel()
	if rng.IntN(3) == 0 {
		short, stop := context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Microsecond)
		defer stop()
		ctx = short
	}
	mode, take, give := reader, mu.RLock, mu.RUnlock
	switch rng.IntN(6) {
	case 0, 1:
		mode, take, give = writer, mu.Lock, mu.Unlock
	case 2:
		mode, take, give = writer, mu.TryLock, mu.Unlock
	case 3:
		take = mu.TryRLock
	}
	if take(ctx) != nil {
		return
	}
	p.beside(name, within.enter(mode))
	held, stop := mu.Context(context.Background()), func() bool { return true }
	for range rng.IntN(10) { // the more contexts it has, the longer its end takes
		child, release := context.WithCancel(held)
		defer release()
		stop = context.AfterFunc(child, func() {})
	}
	defer stop()
	p.entered(mu, name, held)
	if rng.IntN(3) == 0 {
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
	}
	if rng.IntN(8) == 0 {
		mode, give = p.convertInCrowd(ctx, mu, name, mode, give, within)
	}
	within.leave(mode)
	q := p.ask(name, "Unlock").never("not held")
	if err := give(context.Background()); errors.Is(err, rwlock.ErrNotHeld) {
		q.got(err)
	}
}

// convertInCrowd upgrades or downgrades, and returns the mode then and what gives it back.
func (p *probe) convertInCrowd(
	ctx context.Context, mu *rwlock.RWMutex, name string, mode int64, give func(context.Context) error, within *inside,
) (int64, func(context.Context) error) {
	if mode == writer { // it does not write any more: before the call returns readers may be in
		within.leave(writer)
		within.enter(reader)
		if err := mu.Downgrade(ctx); err == nil {
			return reader, mu.RUnlock
		}
		within.leave(reader)
		p.beside(name, within.enter(writer))
		return writer, give
	}
	if err := mu.Upgrade(ctx); err != nil {
		return reader, give
	}
	within.leave(reader)
	p.beside(name, within.enter(writer))
	return writer, mu.Unlock
}

// beside records a goroutine that entered at the side of another one of its process.
func (p *probe) beside(name string, may bool) {
	if !may {
		p.ask(name, "a section beside another one of the process").never("nil").local().got(nil)
	}
}

// entered records a goroutine that was let in under a lock that had been lost for a while.
func (p *probe) entered(mu *rwlock.RWMutex, name string, held context.Context) {
	if !errors.Is(context.Cause(held), rwlock.ErrLost) {
		return
	}
	at, lost := time.Now(), lostAt(p.locker, name, mu.Token())
	if !lost.IsZero() && at.Sub(lost) > 2*stillness {
		p.ask(name, fmt.Sprintf("a section under a lock that was lost %v before", at.Sub(lost))).local().got(nil, "lost")
	}
}

// stairs has goroutines of this process arrive one after the other at an RWMutex that is held: they are served in that
// order, neighbouring readers together.
func (p *probe) stairs() {
	mu, name := p.locker.RWMutex(p.name("m")), p.name("m")
	ctx, cancel := p.longer()
	defer cancel()
	take, give := mu.RLock, mu.RUnlock
	if p.rng.IntN(2) == 0 {
		take, give = mu.Lock, mu.Unlock
	}
	if !p.ask(name, "Lock of a free RWMutex").got(take(ctx), "nil") {
		return
	}
	var all sync.WaitGroup
	var order []int // of the writers, by their arrival, and what came in before each of them
	var guard sync.Mutex
	modes, arrived := make([]bool, 3+p.rng.IntN(3)), true
	for i := range modes {
		modes[i] = p.rng.IntN(2) == 0
		all.Go(func() {
			take, give := mu.RLock, mu.RUnlock
			if modes[i] {
				take, give = mu.Lock, mu.Unlock
			}
			if take(ctx) == nil {
				guard.Lock()
				order = append(order, i)
				guard.Unlock()
				time.Sleep(time.Millisecond)
				_ = give(ctx)
			}
		})
		arrived = arrived && p.await(name, i+2)
	}
	q := p.ask(name, fmt.Sprintf("RWMutex of goroutines of which %v write", modes)).local()
	_ = give(ctx)
	all.Wait()
	if passed := overtaken(order, modes); arrived && passed != "" {
		q.got(fmt.Errorf("served in the order %v: %s", order, passed), "nil")
	}
}

// await returns when so many goroutines of this process hold the RWMutex or wait for it, and reports whether they do.
func (p *probe) await(name string, n int) bool {
	for limit, seen := time.Now().Add(time.Second), 0; time.Now().Before(limit); time.Sleep(100 * time.Microsecond) {
		found := 0
		for state := range p.locker.Leases() {
			if state.Name == name && state.Waiting {
				found++
			} else if state.Name == name {
				found += state.Count
			}
		}
		if seen++; found != n {
			seen = 0
		}
		if seen > 1 {
			return true
		}
	}
	return false
}

// overtaken says which goroutine was served before one of an earlier arrival, unless both read.
func overtaken(order []int, writes []bool) string {
	for at, later := range order {
		for _, earlier := range order[at+1:] {
			if earlier < later && (writes[earlier] || writes[later]) {
				return fmt.Sprintf("%d before %d", later, earlier)
			}
		}
	}
	return ""
}

// prompt is more time than a lock takes that another process gives up: it hears of that by a message.
const prompt = 1500 * time.Millisecond

// lingering keeps a lock for longer than a waiter has time, until another locker asks for it.
func (p *probe) lingering() {
	name := p.name("l")
	mu := p.locker.RWMutex(name, rwlock.WithLinger(8*p.w.cfg.TTL))
	ctx, cancel := p.longer()
	defer cancel()
	for range 1 + p.rng.IntN(3) {
		if !p.ask(name, "Lock of an RWMutex that lingers").got(mu.Lock(ctx), "nil") {
			return
		}
		_ = mu.Unlock(ctx)
	}
	time.Sleep(p.millis(10))
	limit, stop := context.WithTimeout(ctx, prompt)
	defer stop()
	q := p.ask(name, "Lock of a lock that lingers elsewhere")
	lease, err := p.other.Lock(limit, name)
	q.gotHold(lease, err, "nil")
}

// share has a process hand an RWMutex on among its goroutines while another locker waits for it.
func (p *probe) share() {
	name := p.name("s")
	mu, all, over, slow := p.locker.RWMutex(name), sync.WaitGroup{}, &atomic.Bool{}, &atomic.Bool{}
	for range 4 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 6*p.w.cfg.TTL)
			defer cancel()
			for !over.Load() && mu.Lock(ctx) == nil {
				if slow.Load() {
					time.Sleep(4 * time.Millisecond)
				}
				_ = mu.Unlock(ctx)
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // many sections, so that its next lease has tokens for as many
	slow.Store(true)
	ctx, cancel := p.longer()
	defer cancel()
	limit, stop := context.WithTimeout(ctx, prompt)
	defer stop()
	q := p.ask(name, "Lock of a lock that goroutines hand on elsewhere")
	lease, err := p.other.Lock(limit, name)
	q.gotHold(lease, err, "nil")
	over.Store(true)
	all.Wait()
}

// mutexAnswers calls methods with answers that follow from the holders in this process, and has a waiter that
// another one must wake.
func (p *probe) mutexAnswers() {
	name := p.name("m")
	mu := p.locker.RWMutex(name)
	ctx, cancel := p.longer()
	defer cancel()
	p.ask(name, "Unlock without a lock").never("nil").local().got(mu.Unlock(ctx), "not held")
	if !p.ask(name, "RLock of a free RWMutex").got(mu.RLock(ctx), "nil") {
		return
	}
	p.ask(name, "Unlock of a reader").never("nil").local().got(mu.Unlock(ctx), "not held")
	p.ask(name, "TryLock beside a reader").never("nil").local().got(mu.TryLock(ctx), "contended")
	gaveUp := make(chan error)
	go func() {
		short, stop := context.WithTimeout(ctx, 30*time.Millisecond)
		defer stop()
		gaveUp <- mu.Lock(short)
	}()
	time.Sleep(10 * time.Millisecond)
	q := p.ask(name, "RLock behind a writer that gives up")
	if q.got(mu.RLock(ctx), "nil") {
		p.ask(name, "TryUpgrade beside another reader").never("nil").got(mu.TryUpgrade(ctx), "contended")
		_ = mu.RUnlock(ctx)
	}
	if <-gaveUp == nil {
		p.ask(name, "Lock beside a reader").never("nil").local().got(nil)
		_ = mu.Unlock(ctx)
	}
	p.ask(name, "Upgrade of the only reader").got(mu.Upgrade(ctx), "nil")
	if mu.Unlock(ctx) != nil {
		_ = mu.RUnlock(ctx)
	}
	if lease := p.waitFor(name); lease != nil {
		p.give(lease)
	}
}

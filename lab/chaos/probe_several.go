package main

import (
	"context"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// brief is a context that ends after more time than an answer needs where no fault strikes.
func brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Second)
}

// inAnyOrder returns the names in any order, each in either mode.
func (p *probe) inAnyOrder(names ...string) []rwlock.Want {
	wants := rwlock.Writes(names...)
	p.rng.Shuffle(len(wants), func(i, j int) { wants[i], wants[j] = wants[j], wants[i] })
	for i := range wants {
		wants[i].Mode = rwlock.Mode(1 + p.rng.IntN(2))
	}
	return wants
}

// lockOrder asks for several locks in a section of a later one.
func (p *probe) lockOrder() {
	a, b := p.name("a"), p.name("b")
	section := p.take(b, p.rng.IntN(2) == 0)
	if section == nil {
		return
	}
	defer p.give(section)
	ctx, cancel := brief()
	defer cancel()
	q := p.ask(b, "Lock in a section of the lock").never("nil").local()
	_, err := p.locker.Lock(section.Context(ctx), b)
	q.unless(section.Err() != nil).got(err, "nested")
	if p.rng.IntN(2) == 0 {
		q := p.ask(a, "LockAll of an earlier lock that is free")
		all, err := p.locker.LockAll(section.Context(ctx), p.inAnyOrder(a))
		// The lock order, if a release of the lock is still under way.
		q.unless(section.Err() != nil).gotHold(all, err, "nil", "lock order")
		return
	}
	blocker, free := p.blocks(a, 4*time.Second)
	if blocker == nil {
		return
	}
	defer free()
	q = p.ask(a, "LockAll of an earlier lock that is taken").never("nil").beside(blocker)
	all, err := p.locker.LockAll(section.Context(ctx), p.inAnyOrder(a))
	q.unless(section.Err() != nil).gotHold(all, err, "lock order")
}

// loseOneOfSeveral has one of several locks end while the call waits for another one.
func (p *probe) loseOneOfSeveral() {
	wants := p.inAnyOrder(p.name("d"), p.name("e"))
	ctx, cancel := p.longer()
	defer cancel()
	if p.rng.IntN(2) == 0 { // it may end while the call asks for the rest
		blocker, free := p.blocks(p.name("d"), p.millis(20))
		if blocker == nil {
			return
		}
		limit := rwlock.WithMaxHold(200*time.Microsecond + p.millis(4))
		if all, err := p.locker.LockAll(ctx, wants, limit); err == nil {
			p.neverLost(all)
			_ = all.Release(ctx)
		}
		free()
		return
	}
	blocker, free := p.blocks(p.name("e"), 6*time.Second)
	if blocker == nil {
		return
	}
	defer free()
	q := p.ask(p.name("d"), "LockAll that loses a lock while it waits").never("nil").beside(blocker)
	limit, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	all, err := p.locker.LockAll(limit, wants, rwlock.WithMaxHold(10*time.Millisecond+p.millis(30)))
	q.within(1500*time.Millisecond).gotHold(all, err, "lost")
}

// neverLost records a call of several locks that has just returned a lock that was lost long before.
func (p *probe) neverLost(all *rwlock.MultiLease) {
	at := time.Now()
	for _, lease := range all.Leases() {
		if lost := lostAt(p.locker, lease.Name(), lease.Token()); !lost.IsZero() && at.Sub(lost) > 2*stillness {
			p.ask(lease.Name(), "LockAll that had lost the lock for a while").local().got(nil, "lost")
		}
	}
}

// severalGivenUp has a call of several locks fail, after which it has none of them.
func (p *probe) severalGivenUp() {
	a, b := p.name("a"), p.name("b")
	blocker, free := p.blocks(b, 6*time.Second)
	if blocker == nil {
		return
	}
	defer free()
	ctx, cancel := p.longer()
	defer cancel()
	limit := rwlock.WithMaxWait(time.Millisecond + p.millis(30))
	if p.rng.IntN(3) == 0 {
		short, stop := context.WithTimeout(ctx, p.millis(5))
		defer stop()
		ctx, limit = short, rwlock.WithMaxWait(p.w.cfg.TTL)
	}
	options := []rwlock.LockOption{limit}
	if p.rng.IntN(3) == 0 { // which a call that fails leaves nowhere
		options = append(options, rwlock.WithMinHold(12*p.w.cfg.TTL))
	}
	q := p.ask(a, "LockAll of a lock that is taken").never("nil").beside(blocker)
	all, err := p.locker.LockAll(ctx, p.inAnyOrder(a, b), options...)
	q.gotHold(all, err)
	if lease := p.waitFor(a); lease != nil {
		p.give(lease)
	}
}

// severalWait has a call of several locks wait, while which it has nothing behind the lock that it waits for.
func (p *probe) severalWait() {
	a, b := p.name("a"), p.name("b")
	blocker, free := p.blocks(a, 6*time.Second)
	if blocker == nil {
		return
	}
	ctx, cancel := p.longer()
	defer cancel()
	p.besideWait(func() (releaser, error) { return p.locker.LockAll(ctx, p.inAnyOrder(a, b)) }, blocker, free,
		func(ctx context.Context) (releaser, error) { return p.locker.Lock(ctx, b) })
}

// besideWait takes the later of two locks while a call waits for the earlier one, which is taken.
func (p *probe) besideWait(
	wait func() (releaser, error), blocker *rwlock.Lease, free func(), later func(ctx context.Context) (releaser, error),
) {
	over := make(chan struct{})
	q := p.ask(p.name("a"), "LockAll of a lock that becomes free")
	go func() {
		defer close(over)
		hold, err := wait()
		q.gotHold(hold, err, "nil")
	}()
	time.Sleep(20*time.Millisecond + p.millis(40))
	ctx, cancel := brief()
	defer cancel()
	beside := p.ask(p.name("b"), "Lock beside a LockAll that waits for an earlier lock")
	hold, err := later(ctx)
	beside.unless(blocker.Err() != nil).gotHold(hold, err, "nil")
	free()
	<-over
}

// nesting nests holds of one owner and releases them, also in an order that is refused.
func (p *probe) nesting() {
	ctx, cancel := p.longer()
	defer cancel()
	ctx = reentrant.WithOwner(ctx)
	var holds []*reentrant.Hold
	name, write := p.name("a"), p.rng.IntN(2) == 0
	for range 2 + p.rng.IntN(3) {
		call, take := "RLock of an owner", p.nested.RLock
		if write || p.rng.IntN(4) == 0 {
			call, take = "Lock of an owner", p.nested.Lock
		}
		q := p.ask(name, call)
		hold, err := take(ctx, name)
		if !q.got(err, "nil") {
			break
		}
		holds = append(holds, hold)
	}
	for len(holds) > 0 {
		last := len(holds) - 1
		if last > 0 && p.rng.IntN(2) == 0 {
			outer := holds[p.rng.IntN(last)]
			p.ask(name, "Release of a hold with another in it").never("nil").got(outer.Release(ctx), "order")
		}
		p.ask(name, "Release of the innermost hold").got(holds[last].Release(ctx), "nil")
		if holds = holds[:last]; last > 0 {
			p.ask(name, "Renew after a nested hold").never("released").got(holds[0].Lease().Renew(ctx), "nil")
		}
	}
}

// nestInLost nests in a section that has lost its lock.
func (p *probe) nestInLost() {
	ctx, cancel := p.longer()
	defer cancel()
	ctx = reentrant.WithOwner(ctx)
	name := p.name("x")
	outer, err := p.nested.RLock(ctx, name, rwlock.WithMaxHold(5*time.Millisecond+p.millis(10)))
	if err != nil {
		return
	}
	<-outer.Lease().Done()
	q := p.ask(name, "RLock in a section that has lost its lock").never("nil").local()
	inner, err := p.nested.RLock(ctx, name)
	q.gotHold(inner, err, "lost")
	p.ask(name, "Release of a section that has lost its lock").never("nil").local().got(outer.Release(ctx), "lost")
}

// sent returns the context of a process that a section calls.
func sent(ctx, section context.Context) context.Context {
	carrier := fencing.MapCarrier{}
	if err := fencing.Inject(section, carrier); err != nil {
		panic(err)
	}
	ctx, err := fencing.Extract(ctx, carrier)
	if err != nil {
		panic(err)
	}
	return ctx
}

// joinedReader joins a hold that reads, as another process does, and asks to write.
func (p *probe) joinedReader() {
	ctx, cancel := p.longer()
	defer cancel()
	name := p.name("j")
	owned := reentrant.WithOwner(ctx)
	outer, err := p.nested.RLock(owned, name)
	if err != nil {
		return
	}
	there, called := reentrant.New(p.other), sent(ctx, outer.Context(owned))
	q := p.ask(name, "RLock that joins")
	joined, err := there.RLock(called, name)
	if q.got(err, "nil") {
		if joined.Lease().Mode() == fencing.Read {
			q := p.ask(name, "Lock of a reader that has joined").never("nil", "contended", "no quorum")
			inner, err := there.Lock(called, name, rwlock.WithMaxWait(time.Second))
			q.gotHold(inner, err, "upgrade")
		}
		_ = joined.Release(ctx)
	}
	p.ask(name, "Release of a hold that was joined").got(outer.Release(ctx), "nil")
}

// joinsAtOnce has several processes read for one owner without a hold.
func (p *probe) joinsAtOnce() {
	ctx, cancel := p.longer()
	defer cancel()
	name, called := p.name("o"), reentrant.AsOwner(ctx, reentrant.NewOwner())
	var all sync.WaitGroup
	for i, remote := range []*rwlock.Locker{p.locker, p.other, p.locker, p.other} {
		there, later := reentrant.New(remote), i > 1
		all.Go(func() {
			if later {
				time.Sleep(5 * time.Millisecond)
			}
			q := p.ask(name, "RLock of an owner in several processes")
			hold, err := there.RLock(called, name)
			if !q.got(err, "nil") {
				return
			}
			time.Sleep(20 * time.Millisecond)
			_ = hold.Release(context.Background())
		})
	}
	all.Wait()
}

// ended joins a hold that its owner has ended, and that stands because of its minimum.
func (p *probe) ended() {
	ctx, cancel := p.longer()
	defer cancel()
	name, owned := p.name("c"), reentrant.WithOwner(ctx)
	outer, err := p.nested.Lock(owned, name, rwlock.WithMinHold(50*time.Millisecond))
	if err != nil {
		return
	}
	called := sent(ctx, outer.Context(owned))
	if err := outer.Release(ctx); err != nil || p.w.cfg.Sends { // it may be on its way
		return
	}
	there, take := reentrant.New(p.other), (*reentrant.Locker).TryRLock
	if p.rng.IntN(2) == 0 {
		take = (*reentrant.Locker).TryLock
	}
	q := p.ask(name, "a join of a hold that was released")
	joined, err := take(there, called, name)
	q.gotHold(joined, err, "lost")
	time.Sleep(60 * time.Millisecond)
}

// ownersOrder has an owner ask for an earlier lock in a section of a later one.
func (p *probe) ownersOrder() {
	a, b := p.name("a"), p.name("b")
	blocker, free := p.blocks(a, 6*time.Second)
	if blocker == nil {
		return
	}
	defer free()
	ctx, cancel := brief()
	defer cancel()
	owned := reentrant.WithOwner(ctx)
	section, err := p.nested.Lock(owned, b)
	if err != nil {
		return
	}
	defer func() { _ = section.Release(context.Background()) }()
	call, waiting := "LockAll of an owner in a section of a later lock", make(chan struct{})
	if p.rng.IntN(2) == 0 {
		call += ", beside a wait of the owner"
		go func() {
			defer close(waiting)
			if hold, err := p.nested.Lock(owned, a); err == nil {
				_ = hold.Release(context.Background())
			}
		}()
		time.Sleep(5*time.Millisecond + p.millis(20))
	} else {
		close(waiting)
	}
	q := p.ask(a, call).never("nil").beside(blocker)
	all, err := p.nested.LockAll(owned, p.inAnyOrder(a))
	q.unless(section.Lease().Err() != nil).gotHold(all, err, "lock order")
	free()
	<-waiting
}

// ownersWait has two goroutines of an owner ask for locks one of which is taken.
func (p *probe) ownersWait() {
	a, b := p.name("a"), p.name("b")
	blocker, free := p.blocks(a, 8*time.Second)
	if blocker == nil {
		return
	}
	defer free()
	ctx, cancel := p.longer()
	defer cancel()
	owned := reentrant.WithOwner(ctx)
	if p.rng.IntN(4) == 0 {
		p.waitsTogether(owned, a, blocker)
		return
	}
	p.besideWait(func() (releaser, error) { return p.nested.LockAll(owned, p.inAnyOrder(a, b)) }, blocker, free,
		func(ctx context.Context) (releaser, error) { return p.nested.Lock(within(owned, ctx), b) })
}

// within is owned, until ctx ends.
func within(owned, ctx context.Context) context.Context {
	deadline, _ := ctx.Deadline()
	limited, cancel := context.WithDeadline(owned, deadline)
	context.AfterFunc(ctx, cancel)
	return limited
}

// waitsTogether waits for another goroutine of the owner and then for the lock, both within one limit.
func (p *probe) waitsTogether(owned context.Context, name string, blocker *rwlock.Lease) {
	// After the first, the second has a second for its request.
	const first, second, slack = 1500 * time.Millisecond, 2600 * time.Millisecond, 1200 * time.Millisecond
	over := make(chan struct{})
	go func() {
		defer close(over)
		if hold, err := p.nested.Lock(owned, name, rwlock.WithMaxWait(first)); err == nil {
			_ = hold.Release(context.Background())
		}
	}()
	time.Sleep(10 * time.Millisecond)
	q := p.ask(name, "Lock of an owner that waits for itself").never("nil").beside(blocker).within(second + slack)
	hold, err := p.nested.Lock(owned, name, rwlock.WithMaxWait(second))
	q.gotHold(hold, err, "contended")
	<-over
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// probe is a goroutine of a worker that takes locks of its own, so that it can foresee what each call returns.
type probe struct {
	*client
	other *rwlock.Locker // of the same process, a stranger to the masters
	round int
}

// probes are by the form whose calls they examine.
var probes = map[string][]func(*probe){
	"lease": {
		(*probe).release, (*probe).lose, (*probe).attempts, (*probe).terms, (*probe).leaseAfterPause,
		(*probe).shorterReader, (*probe).longTTL, (*probe).changed, (*probe).minimumOfDead,
	},
	"tick":    {(*probe).attempts, (*probe).minimum, (*probe).minimumOnce, (*probe).minimumOfDead},
	"convert": {(*probe).conversions, (*probe).lose, (*probe).minimumOnce},
	"pass":    {(*probe).ticket, (*probe).lose},
	"many":    {(*probe).lockOrder, (*probe).loseOneOfSeveral, (*probe).severalGivenUp, (*probe).severalWait},
	"owner": {
		(*probe).nesting, (*probe).nestInLost, (*probe).joinedReader, (*probe).joinsAtOnce, (*probe).ownersOrder,
		(*probe).ownersWait, (*probe).ended,
	},
	"mutex": {
		(*probe).crowd, (*probe).crowd, (*probe).stairs, (*probe).lingering, (*probe).share, (*probe).mutexAnswers,
		(*probe).readersAfterPause, (*probe).lingerOverPause, (*probe).handOnAfterPause,
	},
}

// probe examines calls of the forms of the run until all faults have ended.
func (w *worker) probe(shared *opened, id int) {
	var all []func(*probe)
	for _, form := range w.cfg.Forms {
		all = append(all, probes[form]...)
	}
	if len(all) == 0 || w.cfg.Replicas > 0 { // short TTLs leave replicas no time
		return
	}
	p := &probe{client: &client{
		w: w, id: id, shares: true, rng: rand.New(rand.NewPCG(w.cfg.Seed, uint64(w.cfg.Process*1000+id))),
		locker: shared.locker, nested: reentrant.New(shared.locker),
	}}
	stranger := w.open()
	if stranger == nil {
		return
	}
	defer stranger.close()
	p.other = stranger.locker
	rest := 250 * time.Millisecond // the sections of the other goroutines are to go on
	if isNarrow(w.cfg.Forms) {
		rest = 5 * time.Millisecond
	}
	for !w.healed.Load() && !w.stopped.Load() {
		p.round = p.rng.IntN(3) // some names are taken again, and must be free
		all[p.rng.IntN(len(all))](p)
		time.Sleep(rest)
	}
}

// isNarrow reports whether the forms of a run are few, because it looks into a part.
func isNarrow(forms []string) bool { return len(forms) < len(mix)/2 }

// name returns a name that only this probe uses. The letters give the order of the names.
func (p *probe) name(letter string) string {
	return fmt.Sprintf("p%d.%d.%d%s", p.w.cfg.Process, p.id, p.round, letter)
}

// longer is a context that ends after more time than any call needs where no fault strikes.
func (p *probe) longer() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 4*p.w.cfg.TTL)
}

// inquiry is a call of a probe that was made at that time.
type inquiry struct {
	p     *probe
	a     history.Answer
	other bool // it proves nothing, since what the probe knew has changed

	blocker *rwlock.Lease // of the lock that the call asks for, or nil
}

// ask begins a call.
func (p *probe) ask(name, call string) *inquiry {
	return &inquiry{p: p, a: history.Answer{
		Process: p.w.cfg.Process, Slot: p.w.cfg.Slot, Worker: p.id, Name: name, Call: call, Called: now(),
	}}
}

// within bounds the time of the call.
func (q *inquiry) within(d time.Duration) *inquiry {
	q.a.Within = int64(d)
	return q
}

// local says that no server plays a part in the answer.
func (q *inquiry) local() *inquiry {
	q.a.Local = true
	return q
}

// never names what the call may not return under any fault.
func (q *inquiry) never(causes ...string) *inquiry {
	q.a.Never = causes
	return q
}

// unless says whether what the probe knew when it asked has changed: then the answer proves nothing.
func (q *inquiry) unless(changed bool) *inquiry {
	q.other = changed
	return q
}

// beside names a lease of the lock that the call asks for.
func (q *inquiry) beside(blocker *rwlock.Lease) *inquiry {
	q.blocker = blocker
	return q
}

// got records the answer and what it may be where no fault strikes, and reports whether there was no error.
func (q *inquiry) got(err error, want ...string) bool {
	q.a.Ended, q.a.Got, q.a.Want = now(), causeOf(err), want
	if err != nil {
		q.a.Err = err.Error()
	}
	if q.blocker != nil {
		if err == nil { // a step of the server's clock may have ended its hold
			ctx, cancel := q.p.longer()
			q.other = q.other || q.blocker.Renew(ctx) != nil
			cancel()
		}
		q.other = q.other || q.blocker.Err() != nil
	}
	if !q.other {
		q.p.w.record(history.Event{Answer: &q.a})
	}
	return err == nil
}

// releaser is a hold of any form.
type releaser interface {
	Release(ctx context.Context) error
}

// gotHold is got for a call that returns a hold, which it gives back.
func (q *inquiry) gotHold(hold releaser, err error, want ...string) {
	if q.got(err, want...) {
		_ = hold.Release(context.Background())
	}
}

// causes are the names of errors. The first that matches names an error.
var causes = []struct {
	name     string
	sentinel error
}{
	{"order", reentrant.ErrOrder},
	{"lock order", rwlock.ErrLockOrder},
	{"nested", rwlock.ErrNested},
	{"closed", rwlock.ErrClosed},
	{"lost", rwlock.ErrLost},
	{"upgrade", rwlock.ErrUpgrade},
	{"ticket", rwlock.ErrTicket},
	{"option", rwlock.ErrOption},
	{"not held", rwlock.ErrNotHeld},
	{"released", rwlock.ErrReleased},
	{"replicas", rwlock.ErrReplicas},
	{"conflict", rwlock.ErrConflict},
	{"no quorum", rwlock.ErrNoQuorum},
	{"contended", rwlock.ErrNotAcquired},
	{"context", context.DeadlineExceeded},
	{"context", context.Canceled},
}

// causeOf names the cause of an error, "nil" for none.
func causeOf(err error) string {
	if err == nil {
		return "nil"
	}
	for _, c := range causes {
		if errors.Is(err, c.sentinel) {
			return c.name
		}
	}
	return "other"
}

// take takes a free lock. It returns nil if it fails.
func (p *probe) take(name string, write bool, opts ...rwlock.LockOption) *rwlock.Lease {
	ctx, cancel := p.longer()
	defer cancel()
	call, take := "RLock of a free lock", p.locker.RLock
	switch try := p.rng.IntN(2) == 0; {
	case try && write:
		call, take = "TryLock of a free lock", p.locker.TryLock
	case try:
		call, take = "TryRLock of a free lock", p.locker.TryRLock
	case write:
		call, take = "Lock of a free lock", p.locker.Lock
	}
	q := p.ask(name, call)
	lease, err := take(ctx, name, opts...)
	if !q.got(err, "nil") {
		return nil
	}
	return lease
}

// waitFor is take for a lock that its process may be about to give back.
func (p *probe) waitFor(name string, opts ...rwlock.LockOption) *rwlock.Lease {
	ctx, cancel := p.longer()
	defer cancel()
	q := p.ask(name, "Lock of a lock that is given back")
	lease, err := p.locker.Lock(ctx, name, opts...)
	if !q.got(err, "nil") {
		return nil
	}
	return lease
}

// give releases a lease that nothing but a fault ends.
func (p *probe) give(lease *rwlock.Lease) {
	p.ask(lease.Name(), "Release").got(lease.Release(context.Background()), "nil")
}

// useless calls methods of a lease that has ended.
func (p *probe) useless(lease *rwlock.Lease, why string, want ...string) {
	ctx, cancel := p.longer()
	defer cancel()
	for _, i := range p.rng.Perm(4)[:2] {
		call, f := "Renew", lease.Renew
		switch {
		case i == 1:
			call, f = "SetTTL", func(ctx context.Context) error { return lease.SetTTL(ctx, p.w.cfg.TTL/2+100*time.Millisecond) }
		case i == 2:
			call, f = "Detach", func(ctx context.Context) error { _, err := lease.Detach(ctx); return err }
		case i == 3 && lease.Mode() == fencing.Read:
			call, f = "Upgrade", lease.Upgrade
		case i == 3:
			call, f = "Downgrade", lease.Downgrade
		}
		p.ask(lease.Name(), call+" of a lease "+why).never("nil").got(f(ctx), want...)
	}
}

// release releases locks and takes them again at once.
func (p *probe) release() {
	name := p.name("a")
	for range 1 + p.rng.IntN(4) {
		lease := p.take(name, p.rng.IntN(2) == 0)
		if lease == nil {
			return
		}
		p.give(lease)
		if p.rng.IntN(3) == 0 {
			p.useless(lease, "that was released", "released", "lost")
		}
	}
}

// lose has a lease end while it is held.
func (p *probe) lose() {
	limit := 5*time.Millisecond + p.millis(20)
	lease := p.waitFor(p.name("z"), rwlock.WithMaxHold(limit))
	if lease == nil {
		return
	}
	select {
	case <-lease.Done():
	case <-time.After(20 * p.w.cfg.TTL): // never, since a timer ends it
	}
	if p.rng.IntN(2) == 0 {
		p.useless(lease, "that is lost", "lost")
	}
	p.ask(lease.Name(), "Release of a lease that is lost").never("nil").got(lease.Release(context.Background()), "lost")
	if p.rng.IntN(2) == 0 {
		if next := p.waitFor(p.name("z")); next != nil {
			p.give(next)
		}
	}
}

// attempts makes single attempts, some of which it gives up, each right after the other.
func (p *probe) attempts() {
	name := p.name("a")
	for range 3 + p.rng.IntN(5) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(p.rng.IntN(1500))*time.Microsecond)
		take := p.locker.TryLock
		if p.rng.IntN(2) == 0 {
			take = p.locker.TryRLock
		}
		if lease, err := take(ctx, name); err == nil {
			_ = lease.Release(ctx)
		}
		cancel()
		if lease := p.take(name, p.rng.IntN(2) == 0); lease != nil {
			p.give(lease)
		}
	}
}

// terms changes the TTL of a lease up and down, from two goroutines and with little time. A lease that lasts so short
// may be lost on a busy machine.
func (p *probe) terms() {
	var options []rwlock.LockOption
	if p.rng.IntN(2) == 0 {
		options = append(options, rwlock.WithoutRenewal())
	}
	lease := p.waitFor(p.name("w"), options...)
	if lease == nil {
		return
	}
	ttls := []time.Duration{shortTTL, max(p.w.cfg.TTL/2, shortTTL), p.w.cfg.TTL}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
			_ = lease.Renew(ctx)
			cancel()
		}
	}()
	for range 4 {
		ttl := ttls[p.rng.IntN(len(ttls))]
		ctx, cancel := context.WithTimeout(context.Background(), p.w.cfg.TTL)
		_ = lease.SetTTL(ctx, ttl) // the trust in a master stays while an earlier renewal there has no answer
		cancel()
		time.Sleep(p.millis(20))
	}
	<-done
	_ = lease.Release(context.Background())
}

// conversions upgrades and downgrades a lease without a rival.
func (p *probe) conversions() {
	lease := p.take(p.name("a"), p.rng.IntN(2) == 0)
	if lease == nil {
		return
	}
	ctx, cancel := p.longer()
	defer cancel()
	for range 1 + p.rng.IntN(4) {
		name, convert := "Downgrade", lease.Downgrade
		if lease.Mode() == fencing.Read {
			name, convert = "Upgrade", lease.Upgrade
			if p.rng.IntN(2) == 0 {
				name, convert = "TryUpgrade", lease.TryUpgrade
			}
		}
		before := lease.Token()
		if !p.ask(lease.Name(), name+" without others").got(convert(ctx), "nil") {
			break
		}
		if lease.Token() <= before {
			p.ask(lease.Name(), name).never("other").got(fmt.Errorf("token %d after %d", lease.Token(), before))
		}
	}
	p.give(lease)
}

// ticket detaches a lease and adopts it.
func (p *probe) ticket() {
	lease := p.take(p.name("a"), p.rng.IntN(2) == 0)
	if lease == nil {
		return
	}
	ctx, cancel := p.longer()
	defer cancel()
	detaching := time.Now()
	isLate := func() bool { return time.Since(detaching) > p.w.cfg.TTL/2 }
	ticket, err := lease.Detach(ctx)
	if !p.ask(lease.Name(), "Detach").got(err, "nil") {
		_ = lease.Release(ctx)
		return
	}
	p.useless(lease, "that was detached", "released")
	if p.rng.IntN(2) == 0 {
		q := p.ask(lease.Name(), "TryLock beside a ticket")
		rival, err := p.locker.TryLock(ctx, lease.Name())
		if q.unless(isLate()).got(err, "contended") {
			p.give(rival)
		}
	}
	q := p.ask(lease.Name(), "Adopt of a new ticket")
	adopted, err := p.locker.Adopt(ctx, ticket)
	if !q.unless(isLate()).got(err, "nil") { // the masters keep the lock for the ticket: a later probe needs a free one
		if next := p.waitFor(lease.Name()); next != nil {
			p.give(next)
		}
		return
	}
	if p.rng.IntN(2) == 0 {
		again, err := p.locker.Adopt(ctx, ticket)
		p.ask(lease.Name(), "Adopt of a used ticket").never("nil").gotHold(again, err)
	}
	p.give(adopted)
	if next := p.take(lease.Name(), true); next != nil {
		p.give(next)
	}
}

// blocks has a lock taken by another caller of this process, for a time or until free is called.
func (p *probe) blocks(name string, d time.Duration) (blocker *rwlock.Lease, free func()) {
	lease := p.waitFor(name)
	if lease == nil {
		return nil, nil
	}
	var once sync.Once
	freed, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-freed:
		case <-time.After(d):
		}
		_ = lease.Release(context.Background())
	}()
	return lease, func() {
		once.Do(func() { close(freed) })
		<-over
	}
}

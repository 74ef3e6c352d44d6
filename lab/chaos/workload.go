package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// client is one goroutine of a worker that takes locks in every form.
type client struct {
	w      *worker
	id     int
	rng    *rand.Rand
	locker *rwlock.Locker
	nested *reentrant.Locker

	shares    bool          // the locker with the other goroutines of its process
	registers *section      // nil: it leaves them alone
	lost      *atomic.Int64 // when the context of the last work ended
}

func (c *client) millis(limit int) time.Duration {
	return time.Duration(c.rng.IntN(limit+1)) * time.Millisecond
}

func (c *client) span(name, form string, write bool) history.Span {
	c.lost = nil
	return history.Span{
		Process: c.w.cfg.Process, Slot: c.w.cfg.Slot, Worker: c.id, Name: name, Form: form, Write: write, Called: now(),
		Owner: fmt.Sprintf("%d.%d.%d", c.w.cfg.Process, c.id, c.rng.Uint64()),
	}
}

// mix is the forms from which a section's is drawn.
var mix = []string{
	"lease", "lease", "tick", "mutex", "mutex", "mutex", "convert", "convert", "owner", "owner", "many", "pass", "operate",
}

// step is one section in a randomly drawn form.
func (c *client) step() {
	name := fmt.Sprint("n", c.rng.IntN(c.w.cfg.Names))
	ctx, limit, cancel := c.limited()
	defer cancel()
	switch forms := c.w.cfg.Forms; forms[c.rng.IntN(len(forms))] {
	case "lease":
		c.lease(ctx, name, limit)
	case "tick":
		c.tick(ctx, name, limit)
	case "mutex":
		c.mutex(ctx, "m"+name, limit)
	case "convert":
		c.convert(ctx, name, limit)
	case "owner":
		c.owner(ctx, name, limit)
	case "many":
		c.many(ctx, limit)
	case "pass":
		c.pass(ctx, name, limit)
	case "operate":
		c.operate(ctx, name)
	}
	time.Sleep(c.millis(5))
}

// limited returns a context that ends after a while, or at any moment of an acquisition. Some are cancelled, so that
// the call does not know before when they end.
func (c *client) limited() (context.Context, time.Duration, context.CancelFunc) {
	limit := c.millis(4 * int(c.w.cfg.TTL/time.Millisecond))
	switch c.rng.IntN(10) {
	case 0, 1:
		limit = c.millis(30)
	case 2:
		limit = time.Duration(c.rng.IntN(4000)) * time.Microsecond
	case 3:
		limit = time.Duration(c.rng.IntN(4000)) * time.Microsecond
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(limit, cancel)
		return ctx, limit, cancel
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	return ctx, limit, cancel
}

// lease takes a lease, with options, waiting or not.
func (c *client) lease(ctx context.Context, name string, limit time.Duration) {
	var options []rwlock.LockOption
	bounded := false
	switch ttl := c.w.cfg.TTL; c.rng.IntN(8) {
	case 0:
		options, bounded = append(options, rwlock.WithoutRenewal()), true
	case 1:
		options, bounded = append(options, rwlock.WithMaxHold(50*time.Millisecond+rand.N(ttl))), true
	case 2:
		options = append(options, rwlock.WithTTL(max(ttl/2, 100*time.Millisecond)))
	}
	write, form, take := c.rng.IntN(2) == 0, "lock", c.locker.RLock
	switch try := c.rng.IntN(5) == 0; {
	case try && write:
		form, take = "try", c.locker.TryLock
	case try:
		form, take = "try", c.locker.TryRLock
	case write:
		take = c.locker.Lock
	}
	s := c.span(name, form, write)
	s.Bounded, s.Queued = bounded, form == "lock"
	lease, err := take(ctx, name, options...)
	if err != nil {
		c.failed(s, limit, err)
		return
	}
	s.Granted, s.Token = now(), uint64(lease.Token())
	switch c.rng.IntN(8) {
	case 0:
		_ = lease.SetTTL(ctx, max(c.w.cfg.TTL/2, 100*time.Millisecond))
	case 1: // shorter, and the longer one again
		_ = lease.SetTTL(ctx, max(c.w.cfg.TTL/2, 100*time.Millisecond))
		_ = lease.SetTTL(ctx, c.w.cfg.TTL)
	}
	c.work(&s, lease.Context(context.Background()))
	if c.rng.IntN(4) == 0 {
		_ = lease.Renew(ctx)
	}
	c.ended(s, lease.Release(context.Background()))
}

// tick does work that one client does and the others leave out, for a time with a minimum.
func (c *client) tick(ctx context.Context, name string, limit time.Duration) {
	write, do := c.rng.IntN(2) == 0, c.locker.TryRDo
	if write {
		do = c.locker.TryDo
	}
	var options []rwlock.LockOption
	s := c.span(name, "tick", write)
	if c.rng.IntN(2) == 0 {
		least := (time.Millisecond + rand.N(c.w.cfg.TTL/8)).Truncate(time.Millisecond)
		options, s.MinHold = append(options, rwlock.WithMinHold(least)), int64(least)
	}
	ran, err := do(ctx, name, func(held context.Context) error {
		fence, err := fencing.Require(held, name)
		if err != nil {
			panic(err)
		}
		s.Granted, s.Token = now(), uint64(fence.Token)
		c.work(&s, held)
		return nil
	}, options...)
	switch {
	case ran:
		c.ended(s, err)
	case err == nil:
		c.failed(s, limit, rwlock.ErrNotAcquired)
	default:
		c.failed(s, limit, err)
	}
}

// convert upgrades or downgrades a lease in its middle.
func (c *client) convert(ctx context.Context, name string, limit time.Duration) {
	write := c.rng.IntN(2) == 0
	take := c.locker.RLock
	if write {
		take = c.locker.Lock
	}
	s := c.span(name, "convert", write)
	s.Queued = true
	lease, err := take(ctx, name)
	if err != nil {
		c.failed(s, limit, err)
		return
	}
	s.Granted, s.Token = now(), uint64(lease.Token())
	held := lease.Context(context.Background())
	c.work(&s, held)
	_, _ = c.converted(ctx, &s, lease, held, func() context.Context { return held })
	c.ended(s, lease.Release(context.Background()))
}

// mutex uses the RWMutex of the name, with its own linger for each name.
func (c *client) mutex(ctx context.Context, name string, limit time.Duration) {
	mu := c.locker.RWMutex(name, c.lingerOf(name)...)
	write := c.rng.IntN(2) == 0
	take, give, try := mu.RLock, mu.RUnlock, c.rng.IntN(5) == 0
	switch {
	case try && write:
		take, give = mu.TryLock, mu.Unlock
	case try:
		take = mu.TryRLock
	case write:
		take, give = mu.Lock, mu.Unlock
	}
	s := c.span(name, "mutex", write)
	s.Queued = c.shares && !try
	if err := take(ctx); err != nil {
		c.failed(s, limit, err)
		return
	}
	s.Granted, s.Token = now(), uint64(mu.Token())
	held := mu.Context(context.Background())
	c.work(&s, held)
	if c.rng.IntN(4) > 0 {
		c.ended(s, give(context.Background()))
		return
	}
	next, err := c.converted(ctx, &s, mu, held, func() context.Context { return mu.Context(context.Background()) })
	if err != nil {
		next.Form = history.Conversion
		c.failed(next, limit, err)
	} else if give = mu.RUnlock; s.Write {
		give = mu.Unlock
	}
	c.ended(s, give(context.Background()))
}

// convertible is a lease or an RWMutex.
type convertible interface {
	Upgrade(ctx context.Context) error
	TryUpgrade(ctx context.Context) error
	Downgrade(ctx context.Context) error
	Token() fencing.Token
}

// converted upgrades or downgrades in the middle of a section, whose work goes on in the other mode. It returns the
// section that was to follow. after returns the context of that.
func (c *client) converted(
	ctx context.Context, s *history.Span, of convertible, held context.Context, after func() context.Context,
) (next history.Span, err error) {
	next = *s
	next.Write, next.Called, next.Last, next.Over, next.Queued = !s.Write, now(), 0, 0, false
	convert := of.Upgrade
	switch {
	case s.Write:
		convert = of.Downgrade
	case c.rng.IntN(3) == 0:
		convert = of.TryUpgrade
	}
	if err := convert(ctx); err != nil {
		c.look(s, held)
		return next, err
	}
	next.Granted, next.Token = now(), uint64(of.Token())
	converted := after()
	s.End, s.Ended, s.Kept = "converted", next.Granted, c.look(&next, converted)
	c.w.record(history.Event{Span: s})
	c.work(&next, converted)
	*s = next
	return next, nil
}

// lingerOf is the option of every second name.
func (c *client) lingerOf(name string) []rwlock.MutexOption {
	if name[len(name)-1]%2 == 0 {
		return []rwlock.MutexOption{rwlock.WithLinger(c.w.cfg.TTL / 4)}
	}
	return nil
}

// owner nests a lock in itself, in this process and in another one.
func (c *client) owner(ctx context.Context, name string, limit time.Duration) {
	write := c.rng.IntN(2) == 0
	do := c.nested.RDo
	if write {
		do = c.nested.Do
	}
	s := c.span(name, "owner", write)
	owned := reentrant.WithOwner(ctx)
	owner, _ := reentrant.OwnerFrom(owned)
	s.Owner, s.Queued = owner.String(), true
	ran := false
	err := do(owned, name, func(held context.Context) error {
		ran = true
		fence, err := fencing.Require(held, name)
		if err != nil {
			panic(err)
		}
		s.Granted, s.Token = now(), uint64(fence.Token)
		if c.rng.IntN(2) == 0 {
			c.askPartner(held, name, write && c.rng.IntN(2) == 0)
		}
		_ = c.nested.RDo(held, name, func(inner context.Context) error {
			c.work(&s, inner)
			s.Over = 0 // a nested hold may be lost alone
			return nil
		})
		c.look(&s, held)
		return nil
	})
	if !ran {
		c.failed(s, limit, err)
		return
	}
	c.ended(s, err)
}

// askPartner makes another process take the lock for the owner in ctx, and waits until it has released it.
func (c *client) askPartner(ctx context.Context, name string, write bool) {
	if len(c.w.cfg.Partners) == 0 {
		return
	}
	partner := c.w.cfg.Partners[c.rng.IntN(len(c.w.cfg.Partners))]
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", partner)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(c.w.cfg.TTL))
	request := joinRequest{Name: name, Write: write, Fence: map[string][]string{}}
	if fencing.Inject(ctx, fencing.MapCarrier(request.Fence)) != nil {
		return
	}
	if json.NewEncoder(conn).Encode(request) == nil {
		var reply joinReply
		_ = json.NewDecoder(conn).Decode(&reply)
	}
}

// join takes a lock for the owner of another process.
func (w *worker) join(ctx context.Context, nested *reentrant.Locker, request joinRequest) joinReply {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.TTL)
	defer cancel()
	ctx, err := fencing.Extract(ctx, fencing.MapCarrier(request.Fence))
	if err != nil {
		return joinReply{Err: err.Error()}
	}
	c := &client{w: w, id: 1000, rng: rand.New(rand.NewPCG(rand.Uint64(), 1))}
	s := c.span(request.Name, "joined", request.Write)
	owner, _ := reentrant.OwnerFrom(ctx)
	s.Owner, s.Joined = owner.String(), true
	take := nested.RLock
	if request.Write {
		take = nested.Lock
	}
	hold, err := take(ctx, request.Name)
	if err != nil {
		c.failed(s, w.cfg.TTL, err)
		return joinReply{Err: err.Error()}
	}
	s.Granted, s.Token = now(), uint64(hold.Token())
	c.work(&s, hold.Context(context.Background()))
	c.ended(s, hold.Release(context.Background()))
	return joinReply{Token: s.Token}
}

// work checks the lock until the work is over or the lock is lost. Under a write lock it then writes what it has
// derived from the values at its beginning. Some work ignores that its lock is lost.
func (c *client) work(s *history.Span, held context.Context) {
	c.neverLost(s, held)
	lost := new(atomic.Int64)
	c.lost = lost
	context.AfterFunc(held, func() {
		if errors.Is(context.Cause(held), rwlock.ErrLost) { // else a nested section has ended, and the one around it has not
			lost.Store(now())
		}
	})
	if c.registers != nil {
		c.registers.read(s)
	}
	end := now() + int64(c.millis(15))
	if c.rng.IntN(c.w.cfg.Long) == 0 {
		end += int64(rand.N(2 * c.w.cfg.TTL))
	}
	for c.look(s, held) && now() < end {
		time.Sleep(time.Millisecond)
	}
	if c.rng.IntN(200) == 0 {
		time.Sleep(rand.N(2 * c.w.cfg.TTL))
	}
	if c.rng.IntN(60) == 0 && c.w.pauser.pause(c.pauses()) {
		time.Sleep(time.Duration(c.rng.IntN(1000)) * time.Microsecond)
	}
	if c.registers != nil && s.Write {
		c.registers.write(s, c.rng.Uint64()|1)
	}
	if lost.Load() > 0 || c.shares && isOver(held, s.Name) {
		s.Over = now()
	}
}

// isOver reports whether the deadline of a lock has passed. It has, too, if its locker was closed.
func isOver(held context.Context, name string) bool {
	deadline, ok := fencing.Deadline(held, name)
	return ok && !time.Now().Before(deadline)
}

// look records that the lock was still trusted just before the look ended.
func (c *client) look(s *history.Span, held context.Context) bool {
	at := now()
	deadline, ok := fencing.Deadline(held, s.Name)
	if !ok || !time.Now().Before(deadline) {
		return false
	}
	s.Last = at
	return true
}

func (c *client) ended(s history.Span, err error) {
	s.Ended, s.End = now(), "released"
	switch {
	case errors.Is(err, rwlock.ErrLost):
		s.End, s.Lost = "lost", s.Ended
		if c.lost != nil && c.lost.Load() > 0 {
			s.Lost = c.lost.Load()
		}
		if loss, ok := errors.AsType[*rwlock.LostError](err); ok {
			s.Reason = string(loss.Reason)
		}
	case err != nil:
		s.End = "unconfirmed"
	}
	if err != nil {
		s.Err = err.Error()
	}
	c.w.record(history.Event{Span: &s})
}

func (c *client) failed(s history.Span, limit time.Duration, err error) {
	f := history.Failure{
		Process: s.Process, Slot: s.Slot, Worker: s.Worker, Name: s.Name, Form: s.Form, Write: s.Write, Called: s.Called,
		Ended: now(), Limit: int64(limit), Err: err.Error(), Cause: causeOf(err),
	}
	if errors.As(err, new(*rwlock.BrokenError)) {
		f.Cause = "broken"
	}
	c.w.record(history.Event{Failure: &f})
}

// takeAll takes every lock once after the last fault: each must be granted.
func (c *client) takeAll() {
	for i := range c.w.cfg.Names {
		if c.w.stopped.Load() {
			return
		}
		const limit = time.Minute
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		name := fmt.Sprint("n", i)
		s := c.span(name, "final", true)
		s.Queued = true
		lease, err := c.locker.Lock(ctx, name)
		for errors.Is(err, rwlock.ErrReplicas) && ctx.Err() == nil { // replicas are still catching up
			lease, err = c.locker.Lock(ctx, name)
			s.Queued = false
		}
		if err != nil {
			c.failed(s, limit, err)
		} else {
			s.Granted, s.Token = now(), uint64(lease.Token())
			c.work(&s, lease.Context(context.Background()))
			c.ended(s, lease.Release(context.Background()))
		}
		mu := c.locker.RWMutex("m"+name, c.lingerOf("m"+name)...)
		s = c.span("m"+name, "final", true)
		for err = mu.Lock(ctx); errors.Is(err, rwlock.ErrReplicas) && ctx.Err() == nil; {
			err = mu.Lock(ctx)
		}
		if err != nil {
			c.failed(s, limit, err)
		} else {
			s.Granted, s.Token = now(), uint64(mu.Token())
			c.work(&s, mu.Context(context.Background()))
			c.ended(s, mu.Unlock(context.Background()))
		}
		cancel()
	}
}

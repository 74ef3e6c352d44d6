package testkit

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Call is a call under way in a goroutine of its own.
type Call struct {
	w    *World
	Over chan struct{} // closed when Err is set
	Err  error
	At   time.Time // when it was over
}

func (c *Call) run(f func() error) {
	defer close(c.Over)
	c.Err = f()
	c.At = time.Now()
}

// Wait returns when the call is over.
func (c *Call) Wait() {
	c.w.Helper()
	c.w.UntilClosed(c.Over)
}

// Result waits for the end of the call.
func (c *Call) Result() error {
	c.w.Helper()
	c.Wait()
	return c.Err
}

// IsWaiting reports whether the call is still under way once all is settled.
func (c *Call) IsWaiting() bool {
	c.w.Settle()
	select {
	case <-c.Over:
		return false
	default:
		return true
	}
}

// Pending is an acquisition under way.
type Pending struct {
	Call
	Lease *rwlock.Lease
}

// Acquire starts an acquisition.
func (p *Process) Acquire(ctx context.Context, name string, mode rwlock.Mode, opts ...rwlock.LockOption) *Pending {
	return p.acquire(ctx, name, mode, func(*rwlock.Lease) error { return nil }, opts...)
}

func (p *Process) acquire(
	ctx context.Context, name string, mode rwlock.Mode, then func(*rwlock.Lease) error, opts ...rwlock.LockOption,
) *Pending {
	a := &Pending{Call: Call{w: p.W, Over: make(chan struct{})}}
	take := p.Lock
	if mode == rwlock.Read {
		take = p.RLock
	}
	go a.run(func() (err error) {
		if a.Lease, err = take(ctx, name, opts...); err != nil {
			return err
		}
		return then(a.Lease)
	})
	return a
}

// Queue starts an acquisition and returns when it is queued on the server, behind all that are queued already.
func (p *Process) Queue(name string, mode rwlock.Mode, opts ...rwlock.LockOption) *Pending {
	p.W.Helper()
	n := len(p.W.Inspect(name).Waiters)
	a := p.Acquire(p.W.Ctx, name, mode, opts...)
	p.W.UntilWaiting(name, n+1)
	return a
}

// LineUp queues an acquisition and returns when the process knows that it waits; work then runs under the
// lease, which is released. It is the cheap form of Queue, for many.
func (p *Process) LineUp(name string, mode rwlock.Mode, work func(*rwlock.Lease)) *Pending {
	p.W.Helper()
	n := p.Stats().Waiting
	a := p.acquire(p.W.Ctx, name, mode, func(lease *rwlock.Lease) error {
		work(lease)
		return lease.Release(p.W.Ctx)
	})
	p.W.Eventually("it waits", func() bool { return p.Stats().Waiting == n+1 })
	return a
}

// InTurn starts an acquisition and releases the lease at once.
func (p *Process) InTurn(ctx context.Context, name string, mode rwlock.Mode) *Pending {
	return p.acquire(ctx, name, mode, func(lease *rwlock.Lease) error { return lease.Release(p.W.Ctx) })
}

// Granted waits for the lease, and in fake time for the answers of the other masters too.
func (a *Pending) Granted() *rwlock.Lease {
	a.w.Helper()
	a.Wait()
	require.NoError(a.w, a.Err)
	a.w.Settle()
	return a.Lease
}

// GrantedAfter releases the lease that is in the way, and waits for that of the waiter.
func (a *Pending) GrantedAfter(held *rwlock.Lease) *rwlock.Lease {
	a.w.Helper()
	a.w.Release(held)
	return a.Granted()
}

// Failed waits for the error.
func (a *Pending) Failed() error {
	a.w.Helper()
	a.Wait()
	require.Error(a.w, a.Err)
	require.Nil(a.w, a.Lease)
	return a.Err
}

package testkit

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Pending is an acquisition under way in a goroutine of its own.
type Pending struct {
	w     *World
	Over  chan struct{} // closed when Lease or Err is set
	Lease *rwlock.Lease
	Err   error
	At    time.Time // when it was over
}

// Acquire starts an acquisition.
func (p *Process) Acquire(ctx context.Context, name string, mode rwlock.Mode, opts ...rwlock.LockOption) *Pending {
	return p.acquire(ctx, name, mode, func(*rwlock.Lease) error { return nil }, opts...)
}

func (p *Process) acquire(
	ctx context.Context, name string, mode rwlock.Mode, then func(*rwlock.Lease) error, opts ...rwlock.LockOption,
) *Pending {
	a := &Pending{w: p.W, Over: make(chan struct{})}
	take := p.Lock
	if mode == rwlock.Read {
		take = p.RLock
	}
	go func() {
		defer close(a.Over)
		if a.Lease, a.Err = take(ctx, name, opts...); a.Err == nil {
			a.Err = then(a.Lease)
		}
		a.At = time.Now()
	}()
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

// Wait returns when the acquisition is over.
func (a *Pending) Wait() {
	a.w.Helper()
	a.w.UntilClosed(a.Over)
}

// Granted waits for the lease.
func (a *Pending) Granted() *rwlock.Lease {
	a.w.Helper()
	a.Wait()
	require.NoError(a.w, a.Err)
	return a.Lease
}

// Failed waits for the error.
func (a *Pending) Failed() error {
	a.w.Helper()
	a.Wait()
	require.Error(a.w, a.Err)
	require.Nil(a.w, a.Lease)
	return a.Err
}

// IsWaiting reports whether the acquisition is still under way once all is settled.
func (a *Pending) IsWaiting() bool {
	a.w.Settle()
	select {
	case <-a.Over:
		return false
	default:
		return true
	}
}

// First returns the acquisition that is over first.
func (w *World) First(a, b *Pending) *Pending {
	w.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case <-a.Over:
		return a
	case <-b.Over:
		return b
	case <-limit.C:
		w.Fatal("neither acquisition ended")
		return nil
	}
}

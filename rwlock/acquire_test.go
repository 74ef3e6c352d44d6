package rwlock_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// lock takes the lock, and fails the test if that fails.
func (p *process) lock(name string, mode rwlock.Mode, opts ...rwlock.LockOption) *rwlock.Lease {
	p.w.t.Helper()
	return p.acquire(p.w.ctx, name, mode, opts...).granted()
}

// pending is an acquisition under way in a goroutine of its own.
type pending struct {
	w     *world
	over  chan struct{} // closed when lease or err is set
	lease *rwlock.Lease
	err   error
	at    time.Time // when it was over
}

// acquire starts an acquisition.
func (p *process) acquire(ctx context.Context, name string, mode rwlock.Mode, opts ...rwlock.LockOption) *pending {
	a := &pending{w: p.w, over: make(chan struct{})}
	take := p.Lock
	if mode == rwlock.Read {
		take = p.RLock
	}
	go func() {
		defer close(a.over)
		a.lease, a.err = take(ctx, name, opts...)
		a.at = time.Now()
	}()
	return a
}

// queue starts an acquisition and returns when it is queued on the server, behind whoever is queued already.
func (p *process) queue(name string, mode rwlock.Mode, opts ...rwlock.LockOption) *pending {
	p.w.t.Helper()
	n := len(p.w.inspect(name).Waiters)
	a := p.acquire(p.w.ctx, name, mode, opts...)
	p.w.untilWaiting(name, n+1)
	return a
}

// wait returns when the acquisition is over.
func (a *pending) wait() {
	a.w.t.Helper()
	a.w.untilClosed(a.over)
}

// granted waits for the lease.
func (a *pending) granted() *rwlock.Lease {
	a.w.t.Helper()
	a.wait()
	require.NoError(a.w.t, a.err)
	return a.lease
}

// failed waits for the error.
func (a *pending) failed() error {
	a.w.t.Helper()
	a.wait()
	require.Error(a.w.t, a.err)
	require.Nil(a.w.t, a.lease)
	return a.err
}

// isWaiting reports whether the acquisition is still under way once all is settled.
func (a *pending) isWaiting() bool {
	a.w.settle()
	select {
	case <-a.over:
		return false
	default:
		return true
	}
}

// release gives the leases back, and fails the test if that fails.
func (w *world) release(leases ...*rwlock.Lease) {
	w.t.Helper()
	for _, lease := range leases {
		require.NoError(w.t, lease.Release(w.ctx))
	}
}

// first returns the one that is over first.
func (w *world) first(a, b *pending) *pending {
	w.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-a.over:
		return a
	case <-b.over:
		return b
	case <-limit.C:
		w.t.Fatal("neither acquisition ended")
		return nil
	}
}

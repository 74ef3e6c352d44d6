package rwlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ctxend"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Lease is the client's side of one granted hold, from the grant to Release or loss. Its methods are safe for
// concurrent use. Only the methods of a Locker make one: those of the zero value panic. Release of nil returns nil.
type Lease struct {
	inner  engine.Lease
	locker *Locker
	owned  bool // acquired for an owner that the caller named

	converting sync.Mutex // held by Upgrade, Downgrade or Detach, also while they wait; taken by TryLock only
	contexts   atomic.Pointer[leaseContexts]
}

// made returns the lease of the engine, which the zero value has not: to use that is a fault of the program.
func (l *Lease) made() *engine.Lease {
	if l.locker == nil {
		panic("rwlock: a Lease is made by a Locker")
	}
	return &l.inner
}

// String names the lock, its mode and the token.
func (l *Lease) String() string {
	return fmt.Sprintf("%s lock %q, token %v", l.Mode(), l.Name(), l.Token())
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.made().Name() }

// Mode returns the mode in which the lease holds the lock.
func (l *Lease) Mode() Mode { return l.made().Mode() }

// Owner returns the owner's id, a ULID.
func (l *Lease) Owner() string { return l.made().Owner() }

// Token returns the fencing token. On one Redis it is greater than the token of every earlier grant of this lock. Over
// a quorum this holds for a writer's token. A reader's token is greater than the token of every earlier write there,
// and two readers may share one token.
func (l *Lease) Token() fencing.Token { return l.made().Token() }

// Fence returns name, token and mode together, for a fencing.Guard or for the storage.
func (l *Lease) Fence() fencing.Fence {
	return fencing.Fence{Resource: l.Name(), Token: l.Token(), Mode: l.Mode()}
}

// Context returns parent with the fence. It is cancelled when the lease ends; context.Cause is then the value of Err.
// Run work under the lock with this context. A timer cancels it: for a moment after a pause of the process its Err may
// be nil although Lease.Err reports the loss. An acquisition that waits under it for the same lock of the same locker
// is ErrNested.
func (l *Lease) Context(parent context.Context) context.Context {
	own := &leaseContext{Context: l.ownContexts().Join(parent), lease: l}
	return fencing.NewSourceContext(own, l)
}

// leaseContexts has the contexts of a lease. Most leases need none, so they are made with the first one.
type leaseContexts struct {
	ctxend.Set
	watched sync.Once
}

// ownContexts returns the contexts of the lease, which end with it.
func (l *Lease) ownContexts() *ctxend.Set {
	c := l.contexts.Load()
	if c == nil {
		l.contexts.CompareAndSwap(nil, new(leaseContexts)) // fails if another call was first
		c = l.contexts.Load()
	}
	c.watched.Do(func() {
		l.made().OnEnd(func(err error) {
			ends, over := c.Finish(l.convertError(err))
			ends.Cancel(over)
		})
	})
	return &c.Set
}

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.made().Done() }

// Err returns nil while the lease can be trusted, ErrReleased after Release and Locker.Close, and a *LostError after a
// loss. It reads the clocks, so it also reports a deadline that passed while the process was paused.
func (l *Lease) Err() error { return l.convertError(l.made().Err()) }

// Deadline returns the time until which the lease is trusted, by this process's clocks, and the zero time once it has
// ended. Each renewal extends it.
func (l *Lease) Deadline() time.Time { return l.made().Deadline() }

// Renew extends the lease by its TTL now, and returns nil when a quorum has confirmed. A *QuorumError, after the node
// timeout at the latest, or an error that matches ctx.Err() and its cause means that the renewal is not confirmed: the
// lease stands until its Deadline, and the request may still extend it. ErrReleased or a *LostError means that the
// lease has ended.
func (l *Lease) Renew(ctx context.Context) error { return l.convertError(l.made().Renew(ctx)) }

// SetTTL changes the TTL of the lease from now on: it renews the lease once, as Renew does and with the same errors,
// and all later renewals have the new TTL too. It must be 100 ms to 24 h, over a quorum at most the quarantine, and
// with WithReplicas at least three times the timeout given there; otherwise the error is an *OptionError, and nothing
// is sent or changed. WithoutRenewal the lease then ends after the new TTL.
//
// Before a shorter TTL is sent, the Deadline falls to what it permits. If ctx ends while an earlier renewal is under
// way, the TTL is unchanged. A longer TTL counts at once, except after renewals without an answer: one of those may
// still arrive, so for about a minute a renewal extends the Deadline by the TTL from before only.
//
// Upgrade and Downgrade keep the TTL; if one is under way, its new hold begins with the TTL from before, until the next
// renewal. The holds of a reentrant owner share the TTL. That of an RWMutex cannot be changed.
func (l *Lease) SetTTL(ctx context.Context, d time.Duration) error {
	inner := l.made()
	own := settings.Lock{Terms: engine.Terms{Terms: hold.Terms{TTL: d, Renew: true}}}
	_, err := lockSettings[LockOption](l.locker, own, nil)
	if refused, ok := err.(*OptionError); ok {
		refused.Option = "SetTTL"
		return refused
	}
	return l.convertError(inner.SetTTL(ctx, d))
}

// Detach leaves the lock to another process, which takes it over by Locker.Adopt with the Ticket, without a gap and
// with a larger token. It renews the lease for its full TTL, or for that of WithTTL, the only option, and ends it
// without a release: Err is ErrReleased when Detach returns. If no process adopts it, the lock is free when that
// renewal has run out. docs/guarantees.md says what holds under "Detach and Adopt".
//
// Unless a quorum confirms the renewal, there is no ticket: the error is that of Renew, and the lease is still held
// with that TTL, unless the error is ErrReleased or a *LostError. The lease of a reentrant owner and that of an RWMutex
// cannot be detached: other goroutines rely on them. During an Upgrade or Downgrade the error matches ErrUpgrade.
func (l *Lease) Detach(ctx context.Context, opts ...LockOption) (Ticket, error) {
	inner := l.made()
	ttl, err := l.detachTTL(opts)
	if err != nil {
		return Ticket{}, err
	}
	if !l.converting.TryLock() {
		return Ticket{}, l.converts()
	}
	defer l.converting.Unlock()
	d, err := inner.Detach(ctx, ttl)
	if err != nil {
		return Ticket{}, l.convertError(err)
	}
	return Ticket{
		Version: ticketVersion, Prefix: l.locker.prefix, Set: d.Set, Name: d.Name, Mode: d.Mode, Owner: d.Owner,
		Hold: d.Hold, Token: d.Token, Remaining: max(d.Left, 0), secret: &d.Secret,
	}, nil
}

// detachTTL returns the TTL of WithTTL, or 0.
func (l *Lease) detachTTL(opts []LockOption) (time.Duration, error) {
	if l.owned {
		return 0, &OptionError{"Detach", l.String(), "must not be the lease of a reentrant owner"}
	}
	if len(opts) == 0 {
		return 0, nil
	}
	own := settings.Lock{Terms: engine.Terms{Terms: hold.Terms{TTL: settings.DefaultTTL, Renew: true}}}
	s, err := lockSettings(l.locker, own, opts)
	if err != nil {
		return 0, err
	}
	if own.TTL = s.TTL; s != own {
		return 0, &OptionError{"Detach", "option", "must be WithTTL: the others are for Adopt"}
	}
	return s.TTL, nil
}

// Release gives the lock back, so that the next waiter can enter. It waits at most the release timeout, and not at all
// with WithBackgroundRelease; the end of ctx is ignored. Hooks of the client find its values only if the release leaves
// by itself: one that leaves with other calls of the process has the values of none. A *QuorumError means that the
// release is not confirmed and continues in the background. One that is not Indeterminate is final: a key
// holds something else (ErrConflict), or the servers refuse the release for good, and the hold ends with its TTL. If
// the lease was lost before, each call returns its *LostError. After a release a further call returns nil, and so does
// Release of a nil lease.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return l.convertError(l.made().Release(ctx))
}

// end releases the lock, and returns the loss of the lease. An unconfirmed release continues in the background. It is
// no error of the work under the lock: that is done.
func (l *Lease) end(ctx context.Context) (losses []error) {
	if err := l.Release(ctx); errors.Is(err, ErrLost) {
		return []error{err}
	}
	return nil
}

// Upgrade turns a read lease into a write lease without a gap: no other writer enters in between. It waits until the
// other readers have left, ahead of all other waiters. The lease remains a read lease while it waits, and also if ctx
// ends or WithMaxWait is reached (*AcquireError, *QuorumError). If another reader waits for an upgrade, the error is
// ErrUpgrade at once, because each of the two would wait for the other: release the lease then, and lock again. On a
// write lease Upgrade does nothing.
//
// Once the write lease is granted, Upgrade has succeeded. It then releases the read hold, until ctx ends and at most
// for the release timeout; after that the release goes on in the background. If the lease is lost or released in that
// time, Upgrade returns that.
//
// The token is a new, larger one, and contexts of the lease show it. Keep no fence: call fencing.Require for each
// access.
func (l *Lease) Upgrade(ctx context.Context) error { return l.convert(ctx, Write, engine.Upgrade, nil) }

// TryUpgrade is Upgrade with a single attempt: if there are other readers, the error matches ErrNotAcquired.
func (l *Lease) TryUpgrade(ctx context.Context) error { return l.convert(ctx, Write, engine.Try, nil) }

// Downgrade turns a write lease into a read lease without a gap: no writer enters in between. Waiting readers enter.
// Readers of other processes enter when the write hold is released, which takes at most as long as the release of
// Upgrade. The token is a new one, and earlier fences are stale, as with Upgrade. On an error that does not match
// ErrLost or ErrReleased the lease is unchanged. On a read lease Downgrade does nothing.
func (l *Lease) Downgrade(ctx context.Context) error { return l.convert(ctx, Read, engine.Try, nil) }

// converts returns the error of a call beside which the lease is being converted or detached.
func (l *Lease) converts() error {
	return fmt.Errorf("%w: lock %q: another call for this lease is under way", ErrUpgrade, l.Name())
}

// convert is Upgrade or Downgrade. If several goroutines share the lease, alone returns when the other ones have left.
func (l *Lease) convert(ctx context.Context, mode Mode, entry engine.Entry, alone func(context.Context) error) error {
	// Checked before the mutex too, so that calls with nothing to do never exclude each other.
	if err := l.Err(); err != nil || l.Mode() == mode {
		return err
	}
	if !l.converting.TryLock() {
		return l.converts()
	}
	defer l.converting.Unlock()
	if err := l.Err(); err != nil || l.Mode() == mode {
		return err
	}
	limit := l.inner.MaxWait()
	if entry == engine.Try {
		limit = 0
	}
	begun := time.Now()
	within, cancel := limited(ctx, limit, begun)
	defer cancel()
	err := l.inner.Convert(within, mode, entry, alone)
	if err == nil {
		return nil
	}
	return asWaited(l.convertError(err), time.Since(begun), ctx, within)
}

// convertError converts the error of a call of this lease, and adds the name of a released lock.
func (l *Lease) convertError(err error) error {
	switch err {
	case nil:
		return nil
	case lockerr.ErrReleased:
		return &releasedError{l.Name()}
	default:
		return convertError(err)
	}
}

// releasedError is ErrReleased with the name of the lock.
type releasedError struct{ name string }

func (e *releasedError) Error() string { return fmt.Sprintf("%v: lock %q", ErrReleased, e.name) }

func (e *releasedError) Unwrap() error { return ErrReleased }

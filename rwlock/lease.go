package rwlock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
)

// Lease is the trust in one granted hold, from the grant to Release or loss. Its methods are safe for concurrent use.
// The zero value and nil have nothing: their errors are an *OptionError, but Release of nil returns nil. The methods of
// a Locker make one.
type Lease struct {
	inner  engine.Lease
	locker *Locker
	owned  bool // taken for an owner that the caller named

	converting sync.Mutex // by Upgrade or Downgrade
	contexts   atomic.Pointer[leaseContexts]
}

// String names the lock, its mode and the token.
func (l *Lease) String() string {
	if l.isUnusable() {
		return "no lease"
	}
	return fmt.Sprintf("%s lock %q, token %v", l.Mode(), l.Name(), l.Token())
}

// Name returns the lock's name.
func (l *Lease) Name() string {
	if l.isUnusable() {
		return ""
	}
	return l.inner.Name()
}

// Mode returns what the lock was taken for.
func (l *Lease) Mode() Mode {
	if l.isUnusable() {
		return 0
	}
	return l.inner.Mode()
}

// Owner returns the owner's id, a ULID.
func (l *Lease) Owner() string {
	if l.isUnusable() {
		return ""
	}
	return l.inner.Owner()
}

// Token returns the fencing token. On one Redis it is greater than that of every grant of this lock before it. Over a
// quorum a write's token is so, and a read's is greater than that of every write before it; two readers may share one.
func (l *Lease) Token() fencing.Token {
	if l.isUnusable() {
		return 0
	}
	return l.inner.Token()
}

// Fence returns name, token and mode together, for a fencing.Guard or for the storage.
func (l *Lease) Fence() fencing.Fence {
	return fencing.Fence{Resource: l.Name(), Token: l.Token(), Mode: l.Mode()}
}

// Context returns parent with the fence, cancelled when the lease ends; context.Cause is Err's value then. Work under
// the lock belongs under this context. Waiting there for the same lock of the same locker is ErrNested.
func (l *Lease) Context(parent context.Context) context.Context {
	if l.isUnusable() {
		return endedContext(parent, l.unusable())
	}
	own := &leaseContext{Context: parent, end: l.ownContexts().endWith(parent), lease: l}
	return fencing.NewSourceContext(own, l)
}

// leaseContexts are those of a lease. Few leases are asked for any, so they are made with the first.
type leaseContexts struct {
	contexts
	watched sync.Once
}

// ownContexts returns the contexts of the lease, which end with it.
func (l *Lease) ownContexts() *contexts {
	c := l.contexts.Load()
	if c == nil {
		l.contexts.CompareAndSwap(nil, new(leaseContexts)) // else another call was first
		c = l.contexts.Load()
	}
	c.watched.Do(func() {
		l.inner.OnEnd(func(err error) {
			over, ends := c.finish(l.outcome(err))
			ends.cancel(over)
		})
	})
	return &c.contexts
}

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} {
	if l.isUnusable() {
		return endedContext(context.Background(), l.unusable()).Done()
	}
	return l.inner.Done()
}

// Err returns nil while the lease can be trusted, ErrReleased after Release and Locker.Close, and a *LostError after a
// loss. It reads the clocks, so it knows of a deadline that passed while the process stood still.
func (l *Lease) Err() error {
	if l.isUnusable() {
		return l.unusable()
	}
	return l.outcome(l.inner.Err())
}

// Deadline returns until when the lease is trusted, by this process's clocks, and the zero time once it has ended. Each
// renewal moves it.
func (l *Lease) Deadline() time.Time {
	if l.isUnusable() {
		return time.Time{}
	}
	return l.inner.Deadline()
}

// Renew extends the lease by its TTL now, and returns nil when a quorum has confirmed. A *QuorumError, or an error that
// matches ctx.Err(), says that this is not confirmed: the lease stands until its Deadline, and the request may extend
// it yet. What else the error matches then is the cause of ctx, which may be the loss of another lease.
// ErrReleased or a *LostError: the lease has ended. Without an answer it returns after the node timeout.
func (l *Lease) Renew(ctx context.Context) error {
	if l.isUnusable() {
		return l.unusable()
	}
	return l.outcome(l.inner.Renew(ctx))
}

// Release gives the lock back and lets the next in. It goes on when ctx has ended, and waits at most the release
// timeout; a *QuorumError says that the release is not confirmed and goes on in the background. One that is not
// Indeterminate is final: a key holds something else (ErrConflict), or the servers refuse the release for good, and
// there the hold ends with its TTL. A lease that was lost before returns its *LostError; a second Release, and one of a
// nil lease, nil.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil {
		return nil
	}
	if l.isUnusable() {
		return l.unusable()
	}
	return l.outcome(l.inner.Release(ctx))
}

package rwlock

import (
	"context"
	"errors"

	"github.com/seed74116694/fencelock/internal/joined"
)

// Do runs fn under Lease.Context while it holds the lock for writing. If Lock fails, fn does not run and the error is
// Lock's. Otherwise Do returns fn's error. If the lease was lost while fn ran, a *LostError is joined to it: fn may
// have run at the same time as another holder, and only the fence kept its accesses out of the storage. The lock is
// released also when fn panics. An unconfirmed release is no error of Do, because the hold ends with its TTL at the
// latest.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...LockOption) error {
	if fn == nil {
		return errNilFn
	}
	lease, err := l.Lock(ctx, name, opts...)
	return run(ctx, lease, err, fn)
}

// RDo is Do for reading: other readers may hold the lock at the same time, and no writer does.
func (l *Locker) RDo(ctx context.Context, name string, fn func(context.Context) error, opts ...LockOption) error {
	if fn == nil {
		return errNilFn
	}
	lease, err := l.RLock(ctx, name, opts...)
	return run(ctx, lease, err, fn)
}

var errNilFn = &OptionError{"fn", "nil", "must be a function"}

// run runs fn under the context of the lease, and releases the lease also when fn fails or panics. err is the error of
// the acquisition, if it failed. run returns a loss even if fn returned nil. It returns the loss once: fn may have
// noticed it and returned it already.
func run(ctx context.Context, lease *Lease, err error, fn func(context.Context) error) (outcome error) {
	if err != nil {
		return err
	}
	defer func() {
		// An unconfirmed release continues in the background. It is no error: the work is done.
		if err := lease.Release(ctx); errors.Is(err, ErrLost) && !errors.Is(outcome, err) {
			outcome = joined.Errors(outcome, err)
		}
	}()
	return fn(lease.Context(ctx))
}

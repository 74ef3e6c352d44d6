package rwlock

import (
	"context"
	"errors"

	"github.com/seed74116694/fencelock/internal/joined"
)

// Do runs fn while holding the lock for writing, under Lease.Context. If Lock fails, fn does not run and the error is
// Lock's. Else Do returns fn's error; if the lease was lost while fn ran, a *LostError joined to it: what fn did then
// may have run beside another holder, and only the fence kept it out of the storage. The lock is released also when fn
// panics. A release that is not confirmed is no error of Do: the hold ends with its TTL at the latest.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...LockOption) error {
	if fn == nil {
		return errNilFn
	}
	lease, err := l.Lock(ctx, name, opts...)
	return run(ctx, lease, err, fn)
}

// RDo is Do for reading: others may read meanwhile, and nobody writes.
func (l *Locker) RDo(ctx context.Context, name string, fn func(context.Context) error, opts ...LockOption) error {
	if fn == nil {
		return errNilFn
	}
	lease, err := l.RLock(ctx, name, opts...)
	return run(ctx, lease, err, fn)
}

var errNilFn = &OptionError{"fn", "nil", "must be a function"}

// run runs fn in the section of the lease, and releases it whatever becomes of fn. err is why there is no lease. A loss
// is told even where fn returned nil, and once: fn may have noticed it and returned it already.
func run(ctx context.Context, lease *Lease, err error, fn func(context.Context) error) (outcome error) {
	if err != nil {
		return err
	}
	defer func() {
		// A release that is not confirmed goes on in the background; the work itself is done.
		if err := lease.Release(ctx); errors.Is(err, ErrLost) && !errors.Is(outcome, err) {
			outcome = joined.Errors(outcome, err)
		}
	}()
	return fn(lease.Context(ctx))
}

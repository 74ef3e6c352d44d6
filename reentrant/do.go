package reentrant

import (
	"context"
	"slices"

	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/rwlock"
)

// Do runs fn while the owner in ctx holds the lock for writing; a ctx without an owner gets a new one. fn runs under
// Hold.Context, which carries the owner too, so Do nests in Do. Do returns fn's error, joined with a *rwlock.LostError
// if the lease was lost while fn ran, and with ErrOrder if fn did not release a hold of this lock. After a loss
// rwlock.Completed reports whether fn had returned nil. When Do returns, also by a panic of fn, its hold has ended and
// so has every hold nested in it: a hold that fn did not release would be renewed for ever.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...rwlock.LockOption) error {
	if fn == nil {
		return errNilFn
	}
	ctx = WithOwner(ctx)
	hold, err := l.Lock(ctx, name, opts...)
	return run(ctx, hold, err, fn)
}

// RDo is Do for reading.
func (l *Locker) RDo(
	ctx context.Context, name string, fn func(context.Context) error, opts ...rwlock.LockOption,
) error {
	if fn == nil {
		return errNilFn
	}
	ctx = WithOwner(ctx)
	hold, err := l.RLock(ctx, name, opts...)
	return run(ctx, hold, err, fn)
}

// TryDo is Do with a single attempt: if another owner holds the lock or waits for it, fn does not run, and TryDo
// returns false and nil. ran reports whether fn ran; any other failure of the attempt is the error of TryLock.
func (l *Locker) TryDo(
	ctx context.Context, name string, fn func(context.Context) error, opts ...rwlock.LockOption,
) (ran bool, err error) {
	if fn == nil {
		return false, errNilFn
	}
	ctx = WithOwner(ctx)
	hold, err := l.TryLock(ctx, name, opts...)
	return tryRun(ctx, hold, err, fn)
}

// TryRDo is TryDo for reading.
func (l *Locker) TryRDo(
	ctx context.Context, name string, fn func(context.Context) error, opts ...rwlock.LockOption,
) (ran bool, err error) {
	if fn == nil {
		return false, errNilFn
	}
	ctx = WithOwner(ctx)
	hold, err := l.TryRLock(ctx, name, opts...)
	return tryRun(ctx, hold, err, fn)
}

// tryRun is run after a single attempt.
func tryRun(ctx context.Context, hold *Hold, err error, fn func(context.Context) error) (ran bool, failed error) {
	if refused, ok := err.(*rwlock.AcquireError); ok && refused.Err == nil {
		return false, nil
	}
	return err == nil, run(ctx, hold, err, fn)
}

var errNilFn = &rwlock.OptionError{Option: "fn", Value: "nil", Rule: "must be a function"}

// held is what run holds while fn runs: a *Hold or a *MultiHold.
type held interface {
	Context(parent context.Context) context.Context
	leave(ctx context.Context, forced bool) (failures []error, order error)
}

// run returns the losses among the failures: an unconfirmed release continues in the background.
func run(ctx context.Context, h held, err error, fn func(context.Context) error) (failed error) {
	if err != nil {
		return err
	}
	defer func() {
		failures, order := h.leave(ctx, true)
		losses := slices.DeleteFunc(failures, func(err error) bool { return !isLoss(err) })
		failed = errs.Join(errs.Outcome(failed, losses...), order)
	}()
	return fn(h.Context(ctx))
}

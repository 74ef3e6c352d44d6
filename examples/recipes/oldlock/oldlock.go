// Package oldlock is a recipe for the release in which a service takes two locks: the lock of another library, which is
// extended while the work runs, and the lock of this library.
package oldlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// Lock is the lock of another library. A *redsync.Mutex has these methods.
type Lock interface {
	LockContext(ctx context.Context) error
	ExtendContext(ctx context.Context) (bool, error)
	UnlockContext(ctx context.Context) (bool, error)
}

// ErrLost reports that the old lock was lost: a process that takes it alone may have been at work at the same time.
var ErrLost = errors.New("oldlock: the old lock is lost")

// Both does the work under the old lock and the lock of this name. expiry is how long the old lock lasts after an
// extension. The old lock is extended while Both waits for the other one, and while the work runs. If that fails, the
// context of the work ends, and the error matches [ErrLost], also where the work has returned nil.
func Both(
	ctx context.Context, old Lock, expiry time.Duration, locker *rwlock.Locker, name string,
	work func(context.Context) error,
) error {
	if err := old.LockContext(ctx); err != nil {
		return err
	}
	held, end := context.WithCancelCause(ctx)
	defer end(nil)
	begun := time.Now() // the grant was earlier: how long LockContext has waited is not known
	err := extend(held, old)
	if err == nil {
		kept := make(chan struct{})
		go func() {
			defer close(kept)
			keep(held, old, expiry, begun, end)
		}()
		err = locker.Do(held, name, work)
		end(nil)
		<-kept // a mutex of redsync has one caller at a time
	}
	released, failure := old.UnlockContext(context.WithoutCancel(ctx))
	if lost := context.Cause(held); errors.Is(lost, ErrLost) {
		return errors.Join(err, lost)
	}
	if err == nil && !released {
		return fmt.Errorf("%w: found at its end: %v", ErrLost, failure)
	}
	return err
}

func extend(ctx context.Context, old Lock) error {
	if extended, err := old.ExtendContext(ctx); !extended {
		return fmt.Errorf("%w: %v", ErrLost, err)
	}
	return nil
}

// keep extends the lock each third of its expiry, until ctx ends. It ends ctx with the first failure, and where no
// extension was answered in time. A tenth of the expiry is left for clocks of different speed.
func keep(ctx context.Context, old Lock, expiry time.Duration, begun time.Time, end context.CancelCauseFunc) {
	trusted := func(since time.Time) time.Duration { return time.Until(since.Add(expiry - expiry/10)) }
	late := time.AfterFunc(trusted(begun), func() { end(fmt.Errorf("%w: not extended in time", ErrLost)) })
	defer late.Stop()
	for {
		select {
		case <-time.After(expiry / 3):
		case <-ctx.Done():
			return
		}
		begun := time.Now()
		if err := extend(ctx, old); err != nil {
			end(err)
			return
		}
		late.Reset(trusted(begun))
	}
}

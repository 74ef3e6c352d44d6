package rwlock

import (
	"context"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
)

// Upgrade turns a read lease into a write lease, without a gap: nobody writes in between. A sole reader has it at once;
// else it waits, before all others who wait and with new readers held back, until the other readers have left. While it
// waits it goes on reading, and if ctx ends or WithMaxWait is reached (*AcquireError, *QuorumError) it still does. A
// reader that asks while another one waits so gets ErrUpgrade at once: each would wait for the other. It has to
// release, and then to lock. Over a quorum two readers that ask at the same moment may both be refused with ErrUpgrade;
// at most one of them is upgraded.
//
// Once it is granted it has succeeded: it also gives back the read hold, until ctx ends and at most for the release
// timeout, and what is not confirmed by then is pursued in the background.
//
// The token is a new, larger one; contexts of the lease show it from then on. A fence that was taken before is stale as
// soon as the new one was used: call fencing.Require for each access and keep no fence. On a write lease Upgrade does
// nothing.
func (l *Lease) Upgrade(ctx context.Context) error { return l.convert(ctx, Write, engine.Upgrade, nil) }

// TryUpgrade is Upgrade with a single attempt: beside other readers the error matches ErrNotAcquired.
func (l *Lease) TryUpgrade(ctx context.Context) error { return l.convert(ctx, Write, engine.Try, nil) }

// Downgrade turns a write lease into a read lease, without a gap: nobody writes in between, and the readers who wait
// are let in: those of other processes when the write hold is given back, which is bounded as with Upgrade. The token
// is a new one, and fences from before are stale, as with Upgrade. On an error that does not match ErrLost or
// ErrReleased the lease is as it was. On a read lease Downgrade does nothing.
func (l *Lease) Downgrade(ctx context.Context) error { return l.convert(ctx, Read, engine.Try, nil) }

// convert is Upgrade or Downgrade. Where several goroutines stand under the lease, alone returns when the others have
// left.
func (l *Lease) convert(ctx context.Context, mode Mode, entry engine.Entry, alone func(context.Context) error) error {
	// Looked at before the mutex too: calls that have nothing to do are not in each other's way.
	if err := l.Err(); err != nil || l.Mode() == mode {
		return err
	}
	if !l.converting.TryLock() {
		return fmt.Errorf("%w: lock %q: another call for this lease is under way", ErrUpgrade, l.Name())
	}
	defer l.converting.Unlock()
	if err := l.Err(); err != nil || l.Mode() == mode {
		return err
	}
	within := ctx
	if limit := engine.MaxWait(&l.inner); limit > 0 && entry == engine.Upgrade {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, limit, &maxWaitError{limit})
		defer cancel()
	}
	begun := time.Now()
	err := l.locker.engine.Convert(within, &l.inner, mode, entry, alone)
	if err == nil {
		return nil
	}
	return asWaited(l.outcome(err), time.Since(begun), ctx, within)
}

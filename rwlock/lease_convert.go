package rwlock

import (
	"context"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
)

// Upgrade turns a read lease into a write lease without a gap: no other writer enters in between. If the lease is the
// only reader, it is upgraded at once. Otherwise it waits until the other readers have left. It waits ahead of all
// other waiters, and new readers are held back. It remains a read lease while it waits, and also if ctx ends or
// WithMaxWait is reached (*AcquireError, *QuorumError). If another reader already waits for an upgrade, Upgrade returns
// ErrUpgrade at once, because each of the two would wait for the other. The caller has to release the lease then and to
// lock again. Over a quorum two readers that ask at the same moment may both get ErrUpgrade; at most one of them is
// upgraded.
//
// Once the write lease is granted, Upgrade has succeeded. It then also releases the read hold, until ctx ends and at
// most for the release timeout. A release that is not confirmed by then continues in the background.
//
// The token is a new, larger one, and contexts of the lease show it from then on. An earlier fence is stale as soon as
// the new one was used: call fencing.Require for each access and keep no fence. On a write lease Upgrade does nothing.
func (l *Lease) Upgrade(ctx context.Context) error { return l.convert(ctx, Write, engine.Upgrade, nil) }

// TryUpgrade is Upgrade with a single attempt: if there are other readers, the error matches ErrNotAcquired.
func (l *Lease) TryUpgrade(ctx context.Context) error { return l.convert(ctx, Write, engine.Try, nil) }

// Downgrade turns a write lease into a read lease without a gap: no writer enters in between. Waiting readers enter.
// Readers of other processes enter when the write hold is released, which takes at most as long as the release of
// Upgrade. The token is a new one, and earlier fences are stale, as with Upgrade. On an error that does not match
// ErrLost or ErrReleased the lease is unchanged. On a read lease Downgrade does nothing.
func (l *Lease) Downgrade(ctx context.Context) error { return l.convert(ctx, Read, engine.Try, nil) }

// convert is Upgrade or Downgrade. If several goroutines share the lease, alone returns when the other ones have left.
func (l *Lease) convert(ctx context.Context, mode Mode, entry engine.Entry, alone func(context.Context) error) error {
	// Checked before the mutex too, so that calls with nothing to do never exclude each other.
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
	if limit := l.inner.MaxWait(); limit > 0 && entry == engine.Upgrade {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, limit, &maxWaitError{limit})
		defer cancel()
	}
	begun := time.Now()
	err := l.inner.Convert(within, mode, entry, alone)
	if err == nil {
		return nil
	}
	return asWaited(l.outcome(err), time.Since(begun), ctx, within)
}

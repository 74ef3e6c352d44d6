package rwlock

import (
	"context"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/owners"
)

// ownerCalls are the calls of package reentrant, each for the owner of its request. A user cannot reach them: see
// package owners. The wait of a call counts from begun.
type ownerCalls Locker

type forOwners = owners.Calls[*ownerCalls]

// Acquire takes a lock for the owner, or joins the owner's hold if the entry is engine.Join. A hold that is not there
// to join is a *LostError.
func (o *ownerCalls) Acquire(
	ctx context.Context, r engine.Request, begun time.Time, opts []LockOption,
) (*Lease, error) {
	return (*Locker)(o).acquire(ctx, r, begun, opts)
}

// AcquireAll takes several locks, each as all says. engine.ErrAgain of outer ends the call, and is not reported as
// failed.
func (o *ownerCalls) AcquireAll(
	ctx context.Context, wants []Want, all engine.Request, begun time.Time, outer owners.Outer, opts []LockOption,
) (*MultiLease, error) {
	return (*Locker)(o).acquireAll(ctx, wants, all, begun, outer, opts)
}

// Await waits until another goroutine of the owner, which is acquiring the lock, closes over. The wait is bounded as
// one for another client, and nothing is asked for.
func (o *ownerCalls) Await(
	ctx context.Context, r engine.Request, begun time.Time, over <-chan struct{}, opts []LockOption,
) error {
	l := (*Locker)(o)
	s, err := lockSettings(l, l.defaults, opts)
	if err != nil {
		return err
	}
	if err := nested(ctx, l, r.Name, r.Owner); err != nil {
		return err
	}
	within, cancel := limited(ctx, s.MaxWait, begun)
	defer cancel()
	select {
	case <-over:
		return nil
	case <-within.Done():
		return &AcquireError{Name: r.Name, Mode: r.Mode, Waited: time.Since(begun), Err: waitingEnd(ctx, within)}
	}
}

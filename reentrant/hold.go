package reentrant

import (
	"context"
	"errors"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// Hold is one acquisition by an owner, nested or not. Its methods are safe for concurrent use. The zero value and nil
// have nothing, and their errors are an *rwlock.OptionError, but Release of nil returns nil. The methods of a Locker
// make one.
type Hold struct {
	section *section
	outer   *Hold // the one that it nests in, or nil
	depth   int

	released bool                      // under the locker's mu
	contexts []context.CancelCauseFunc // under the locker's mu; of a nested hold
}

// Depth returns which of its owner's holds of this lock in this process it is: 1 for the outermost. Holds in other
// processes are not counted; Inspect shows them.
func (h *Hold) Depth() int {
	if h.isZero() {
		return 0
	}
	return h.depth
}

// Token returns the fencing token, the same for the outermost hold and all that nest in it, in whatever process.
func (h *Hold) Token() fencing.Token { return h.Lease().Token() }

// Lease returns the lease that this hold shares with those around it. It is not for releasing: that would end it for
// all of them.
func (h *Hold) Lease() *rwlock.Lease {
	if h.isZero() {
		return new(rwlock.Lease)
	}
	return h.section.lease
}

// Context returns parent with the fence, cancelled when the lease ends, with Lease().Err() as the cause, or when this
// hold is released, with a cause that matches rwlock.ErrReleased. It has the owner that parent has.
func (h *Hold) Context(parent context.Context) context.Context {
	if h.isZero() || h.outer == nil {
		return h.Lease().Context(parent) // ends with the lease, which ends with this hold
	}
	// It ends with this hold too, which the lease outlasts.
	ctx, cancel := context.WithCancelCause(parent)
	if !h.section.attach(h, cancel) {
		cancel(h.section.released())
	}
	return h.section.lease.Context(ctx)
}

// Release ends this hold; the last of its owner gives the lock back, as rwlock.Lease.Release does. It goes on when ctx
// has ended. Under a lease that was lost it ends the hold all the same and returns the *rwlock.LostError. ErrOrder
// leaves everything as it was: the hold still has to be released, after those that nest in it. A second Release, and
// one of a nil hold, returns nil.
func (h *Hold) Release(ctx context.Context) error {
	switch {
	case h == nil:
		return nil
	case h.isZero():
		return errZeroHold
	}
	left, contexts, err := h.section.leave(h)
	if !left {
		return err
	}
	return h.giveBack(ctx, contexts)
}

// end is the Release of a section that is over, whatever nests in this hold: it ends that too, and reports it as
// ErrOrder beside what Release returns.
func (h *Hold) end(ctx context.Context) (order, err error) {
	left, contexts, order := h.section.unwind(h)
	if !left {
		return nil, nil
	}
	return order, h.giveBack(ctx, contexts)
}

// giveBack ends the contexts of holds that were taken out, and the lease if this one was the outermost.
func (h *Hold) giveBack(ctx context.Context, contexts []context.CancelCauseFunc) error {
	if len(contexts) > 0 {
		released := h.section.released()
		for _, cancel := range contexts {
			cancel(released)
		}
	}
	if h.outer == nil {
		return h.section.lease.Release(ctx)
	}
	if err := h.section.lease.Err(); errors.Is(err, rwlock.ErrLost) {
		return err
	}
	return nil
}

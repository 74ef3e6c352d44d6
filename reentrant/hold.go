package reentrant

import (
	"context"
	"errors"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ctxend"
	"github.com/seed74116694/fencelock/rwlock"
)

// Hold is one acquisition by an owner, nested or not. Its methods are safe for concurrent use. Only the methods of a
// Locker make one: those of the zero value panic. Release of nil returns nil.
type Hold struct {
	section *section
	outer   *Hold // the hold in which it nests, or nil
	depth   int

	released bool       // under the locker's mu
	contexts ctxend.Set // of a nested hold
}

// Depth returns the position of the hold among its owner's holds of this lock in this process: 1 for the outermost.
// Holds in other processes are not counted; Inspect shows them.
func (h *Hold) Depth() int { return h.depth }

// Token returns the fencing token. It is the same for the outermost hold and for all holds nested in it, in any
// process.
func (h *Hold) Token() fencing.Token { return h.Lease().Token() }

// Lease returns the lease that this hold shares with the holds around it. Do not release it: that would end it for all
// of them.
func (h *Hold) Lease() *rwlock.Lease { return h.made().lease }

// Context returns parent with the fence and with the owner of parent. It is cancelled when the lease ends, with
// Lease().Err() as the cause, or when this hold is released, with a cause that matches rwlock.ErrReleased.
func (h *Hold) Context(parent context.Context) context.Context {
	ctx := h.Lease().Context(parent)
	if h.outer == nil {
		return ctx // ends with the lease, which ends with this hold
	}
	nested := h.contexts.Join(ctx) // ends with this hold too, because the lease outlives the hold
	return &nested
}

// Release ends this hold. The last hold of the owner gives the lock back, as rwlock.Lease.Release does. Release
// continues when ctx has ended. Under a lost lease it also ends the hold, and returns the *rwlock.LostError. ErrOrder
// changes nothing: the hold still has to be released, after the holds nested in it. A second Release, and Release of a
// nil hold, returns nil.
func (h *Hold) Release(ctx context.Context) error {
	if h == nil {
		return nil
	}
	innermost, err := h.made().leave(h)
	if innermost == nil {
		return err
	}
	return h.giveBack(ctx, innermost)
}

// end releases the hold of a section that is over, together with every hold nested in it. It reports such holds as
// ErrOrder, in addition to the result of the release.
func (h *Hold) end(ctx context.Context) (order, err error) {
	innermost, order := h.section.unwind(h)
	if innermost == nil {
		return nil, nil
	}
	return order, h.giveBack(ctx, innermost)
}

// giveBack ends the contexts of the removed holds, and releases the lease if this hold was the outermost.
func (h *Hold) giveBack(ctx context.Context, innermost *Hold) error {
	h.endContexts(innermost)
	if h.outer == nil {
		return h.section.lease.Release(ctx)
	}
	if err := h.section.lease.Err(); errors.Is(err, rwlock.ErrLost) {
		return err
	}
	return nil
}

// endContexts ends the contexts of the removed holds, from the innermost to this one.
func (h *Hold) endContexts(innermost *Hold) {
	for in := innermost; in != h.outer; in = in.outer {
		ends, cause := in.contexts.Finish((*releasedError)(h.section))
		ends.Cancel(cause)
	}
}

// made returns the section, which the zero value has not: to use that is a fault of the program.
func (h *Hold) made() *section {
	if h.section == nil {
		panic("reentrant: a Hold is made by a Locker")
	}
	return h.section
}

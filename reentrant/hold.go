package reentrant

import (
	"cmp"
	"context"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ctxend"
	"github.com/seed74116694/fencelock/internal/errs"
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
	h.made()
	failures, order := h.leave(ctx, false)
	return cmp.Or(order, errs.Join(failures...))
}

// leave removes the hold, and gives back the lock if it was the outermost. Holds nested in it are removed too if
// forced; else they are ErrOrder, and nothing is removed.
func (h *Hold) leave(ctx context.Context, forced bool) (failures []error, order error) {
	var one [1]removed
	left, order := takeOut([]*Hold{h}, forced, one[:0])
	if len(left) == 0 {
		return nil, order
	}
	h.endContexts(left[0].innermost)
	if h.outer == nil {
		return errs.Parts(h.section.lease.Release(ctx)), order
	}
	if err := h.section.lease.Err(); isLoss(err) {
		failures = []error{err}
	}
	return failures, order
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

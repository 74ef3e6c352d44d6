package reentrant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ctxend"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/owners"
	"github.com/seed74116694/fencelock/rwlock"
)

type sectionKey struct {
	owner   Owner
	name    string
	claimed fencing.Token // the token by which the section joined a hold of the owner; else 0
}

// section is the state of one owner and one lock in this process: a lease, and the holds that share it. It is in the
// locker's table from the first acquisition until the last release.
type section struct {
	locker *Locker
	key    sectionKey
	opened chan struct{} // closed when the first acquisition is over
	lease  *rwlock.Lease // set before that, nil if it failed

	innermost *Hold // under the locker's mu; nil before the section is open and after it is closed
}

// begin ends the first acquisition with the outermost hold, or with nil if it failed. It is always called, so that no
// goroutine waits for this section for ever.
func (s *section) begin(h *Hold) {
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	if s.innermost = h; h == nil {
		delete(s.locker.sections, s.key)
	}
	close(s.opened)
}

// isOver reports whether the first acquisition is over, also if it failed.
func (s *section) isOver() bool {
	select {
	case <-s.opened:
		return true
	default:
		return false
	}
}

// await returns nil when the first acquisition is over. Only a goroutine with the same owner as the acquiring goroutine
// has to wait here. The remote locker bounds the wait as it bounds a wait for another client.
func (s *section) await(ctx context.Context, id *identity, r request) error {
	if r.try {
		return r.notAcquired(0, errBusy)
	}
	return owners.Of(s.locker.remote).Await(ctx, r.remote(id), r.begun, s.opened, r.opts)
}

// nest adds one hold to the lease. It returns nil and no error if the section is no longer open.
func (s *section) nest(ctx context.Context, id *identity, r request) (*Hold, error) {
	if s.lease == nil {
		return nil, nil
	}
	// Before the mutex: if the check finds that the lease has ended, it runs the locker's hooks.
	refusal := s.refusal(ctx, id, r)
	if refusal == nil { // before the upgrade, which cannot be undone
		s.locker.mu.Lock()
		refusal = s.full()
		s.locker.mu.Unlock()
	}
	if refusal == nil {
		refusal = s.upgrade(ctx, r)
	}
	s.locker.mu.Lock()
	defer s.locker.mu.Unlock()
	if refusal == nil {
		refusal = s.full() // another goroutine of the owner may have nested in between
	}
	switch {
	case s.innermost == nil:
		return nil, nil
	case refusal != nil:
		return nil, refusal
	}
	return s.add(), nil
}

// add adds a hold to an open section, under the locker's mu.
func (s *section) add() *Hold {
	s.innermost = &Hold{section: s, outer: s.innermost, depth: s.innermost.depth + 1}
	return s.innermost
}

// full returns ErrDepth if no further hold may nest in this section, under the locker's mu. A section that is not open
// is not full.
func (s *section) full() error {
	if s.innermost == nil || s.innermost.depth < s.locker.maxDepth {
		return nil
	}
	return fmt.Errorf("%w: lock %q is held %d times, the limit of WithMaxDepth",
		ErrDepth, s.key.name, s.innermost.depth)
}

// refusal returns the reason why no hold may nest in this section now, or nil.
func (s *section) refusal(ctx context.Context, id *identity, r request) error {
	switch err := s.lease.Err(); {
	case errors.Is(err, rwlock.ErrLost):
		return err
	case err != nil: // by Lease().Release or by closing the locker
		return fmt.Errorf("%w: lock %q, before the section that nests in it", err, r.name)
	case (id.joins || r.many) && r.mode == rwlock.Write && s.lease.Mode() == rwlock.Read:
		return fmt.Errorf("%w: lock %q is held for reading by the same owner", rwlock.ErrUpgrade, r.name)
	case ctx.Err() != nil:
		return r.notAcquired(0, errs.Cause(ctx))
	}
	return nil
}

// upgrade turns the section's read lock into a write lock if the request is for writing. For an owner from another
// process refusal has already refused this: the other process may read too, and the upgrade would wait for it.
func (s *section) upgrade(ctx context.Context, r request) error {
	switch {
	case r.mode == rwlock.Read:
		return nil
	case r.try:
		return s.lease.TryUpgrade(ctx)
	default:
		return s.lease.Upgrade(ctx)
	}
}

func (r request) notAcquired(waited time.Duration, cause error) error {
	return &rwlock.AcquireError{Name: r.name, Mode: r.mode, Waited: waited, Err: cause}
}

// releasedError is the cause for the contexts of a released hold whose lease continues. It allocates nothing for a hold
// without contexts.
type releasedError section

func (e *releasedError) Error() string {
	return fmt.Sprintf("%v: lock %q", rwlock.ErrReleased, e.key.name)
}

func (e *releasedError) Unwrap() error { return rwlock.ErrReleased }

// removed is a hold that was taken out, with the innermost of those nested in it, or itself.
type removed struct{ hold, innermost *Hold }

// takeOut removes the holds of one locker that are not released, and adds them to left. order is ErrOrder if others
// nest in them: these are removed too if forced, else nothing is.
func takeOut(holds []*Hold, forced bool, left []removed) (_ []removed, order error) {
	locker := holds[0].section.locker
	locker.mu.Lock()
	defer locker.mu.Unlock()
	var nested []error
	for _, h := range holds {
		if !h.released && h.section.innermost != h {
			nested = append(nested, h.section.outOfOrder(h))
		}
	}
	if order = errs.Join(nested...); order != nil && !forced {
		return nil, order
	}
	for _, h := range holds {
		if !h.released {
			left = append(left, removed{h, h.section.takeOut(h)})
		}
	}
	return left, order
}

// takeOut removes the holds from the innermost to h, under the locker's mu, and returns the innermost. A hold that is
// not released is among them, because holds are removed only from the inside.
func (s *section) takeOut(h *Hold) (innermost *Hold) {
	innermost = s.innermost
	for ; s.innermost != h.outer; s.innermost = s.innermost.outer {
		s.innermost.released = true
	}
	if s.innermost == nil {
		delete(s.locker.sections, s.key)
	}
	return innermost
}

// outOfOrder returns an ErrOrder with the depth of the hold. The caller holds the locker's mu.
func (s *section) outOfOrder(h *Hold) error {
	return fmt.Errorf("%w: lock %q: it is hold %d of %d", ErrOrder, s.key.name, h.depth, s.innermost.depth)
}

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

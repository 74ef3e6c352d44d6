package rwlock

import (
	"context"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/ctxend"
	"github.com/seed74116694/fencelock/internal/errs"
)

// leaseContext carries the lease that a context belongs to, and the section under it. The fence in the context does not
// suffice: it may come from another process or another locker, and a fence of the same name around it would hide a
// fence of this locker.
type leaseContext struct {
	ctxend.Context // ends with the lease or section
	lease          *Lease
	section        *section // of an RWMutex, or nil
}

// leaseKey asks a context for its innermost *leaseContext.
type leaseKey struct{}

// Value answers for the lease before the parent does, so the innermost section is found first.
func (c *leaseContext) Value(key any) any {
	if _, ok := key.(leaseKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// innermostLease returns the innermost section that ctx belongs to, of any locker, or nil. The sections around it are
// found from its parent on.
func innermostLease(ctx context.Context) *leaseContext {
	c, _ := ctx.Value(leaseKey{}).(*leaseContext)
	return c
}

// stands reports whether the section that the context belongs to has not ended.
func (c *leaseContext) stands() bool {
	if c.section != nil {
		return c.section.mutex.current.Load() == c.section // until it is unlocked, also if its lease was lost
	}
	return c.lease.Err() == nil
}

// mode returns the mode in which the section holds the lock now: a conversion changes it.
func (c *leaseContext) mode() Mode {
	if c.section != nil {
		return c.section.fence.mode()
	}
	return c.lease.Mode()
}

// limited returns ctx with the limit of WithMaxWait, which counts from begun; 0 is no limit. The limit has a cause of
// its own. So an error can distinguish its end from the end of the caller's context: only the latter matches ctx.Err().
func limited(
	ctx context.Context, limit time.Duration, begun time.Time,
) (within context.Context, cancel context.CancelFunc) {
	if limit == 0 {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, begun.Add(limit), &maxWaitError{limit})
}

// maxWaitError ends the wait at the limit of WithMaxWait. It matches no context error, because the caller's context has
// not ended.
type maxWaitError struct{ limit time.Duration }

func (e *maxWaitError) Error() string { return "WithMaxWait limit of " + e.limit.String() + " reached" }

// asWaited makes an error from Redis, which covers a part of the wait, cover the whole wait: the time in the local
// queue counts too.
func asWaited(err error, waited time.Duration, ctx, within context.Context) error {
	if err == nil { // the caller has the lock, so nothing of its context is called that could panic
		return nil
	}
	ended := within.Err() != nil && ctx.Err() == nil
	switch e := err.(type) {
	case *AcquireError:
		if e.Waited = waited; ended && e.Err != nil {
			e.Err = waitingEnd(ctx, within)
		}
	case *QuorumError:
		if ended && e.Err != nil {
			e.Err = waitingEnd(ctx, within)
		}
	}
	return err
}

// waitingEnd returns why within has ended. If only the limit was reached, it does not report the end of the caller's
// context.
func waitingEnd(ctx, within context.Context) error {
	if ctx.Err() == nil {
		return context.Cause(within)
	}
	return errs.Cause(ctx)
}

// nested returns ErrNested if ctx belongs to a section that holds the lock by a lease of this locker, and that lease
// still stands. A section of an RWMutex stands until its holder unlocks it, even if it was lost. A caller that waited
// inside such a section would wait for itself: the section cannot end before the call returns. This applies to a reader
// too, as soon as a writer queues between its two read locks.
//
// An owner is exempt from the sections of other owners: reentrant.Fork states that it runs concurrently with its
// parent. Its own sections count, because package reentrant asks for a lock that its owner holds only if it does not
// know of that hold.
func nested(ctx context.Context, l *Locker, name, owner string) error {
	for c := innermostLease(ctx); c != nil; c = innermostLease(c.Context.Context) {
		lease := c.lease
		if lease.locker != l || lease.Name() != name || owner != "" && lease.owned && lease.Owner() != owner {
			continue
		}
		if c.stands() {
			return fmt.Errorf("%w: lock %q is held for %s by the section that ctx comes from; %s",
				ErrNested, name, c.mode(), nestingAdvice(lease.owned, owner != ""))
		}
	}
	return nil
}

// nestingAdvice says how the two sections would nest. Only sections of one reentrant.Locker do.
func nestingAdvice(outerOwned, innerOwned bool) string {
	switch {
	case outerOwned && innerOwned:
		return "take both through one reentrant.Locker"
	case outerOwned:
		return "take this one through its reentrant.Locker too"
	case innerOwned:
		return "take that one through package reentrant too"
	default:
		return "nest with package reentrant"
	}
}

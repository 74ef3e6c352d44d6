package rwlock

import (
	"context"
	"fmt"
	"sync"
)

// contexts is the set of contexts that end with one lease, or with one section under it. Parents that end together
// share one end. So its size grows with the number of parents that can end and have not ended, and not with the number
// of calls. The zero value is ready.
type contexts struct {
	mu   sync.Mutex // guards the fields below; never held across a call into a caller's context
	over error      // why they have ended; nil before that
	ends sharedEnds
}

// sharedEnds maps the Done channel of parents to their shared end.
type sharedEnds map[<-chan struct{}]*sharedEnd

// sharedEnd is a context that ends with the parents that have one Done channel, or with the lease or section.
type sharedEnd struct {
	context.Context
	cancel      context.CancelCauseFunc
	stopRemoval func() bool // cancels the removal from sharedEnds at its end
}

// endWith returns a context that ends with a parent or with the set. Its values have no meaning.
func (c *contexts) endWith(parent context.Context) context.Context {
	done := parent.Done()
	c.mu.Lock()
	end := c.ends[done]
	c.mu.Unlock()
	if end != nil {
		return end
	}
	if done == nil { // parent never ends, so it is not kept
		parent = context.Background()
	}
	end = new(sharedEnd)
	end.Context, end.cancel = context.WithCancelCause(parent)
	shared, over := c.add(done, end)
	if shared != end { // another call was first, or the set has ended
		end.cancel(over)
	}
	if shared == nil {
		return end
	}
	return shared
}

// add keeps a new end for the parents with that Done channel and returns it, or returns the existing one. After the end
// of the set it returns nil, and why the set has ended.
func (c *contexts) add(done <-chan struct{}, end *sharedEnd) (shared *sharedEnd, over error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if shared := c.ends[done]; shared != nil || c.over != nil {
		return shared, c.over
	}
	if c.ends == nil {
		c.ends = make(sharedEnds)
	}
	c.ends[done] = end
	end.stopRemoval = context.AfterFunc(end.Context, func() { // a parent that has ended leaves nothing behind
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ends, done)
	})
	return end, nil
}

// finish ends the set, once: the first cause counts. It returns the ends that the caller has to cancel, and that cause.
func (c *contexts) finish(err error) (ends sharedEnds, over error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil {
		c.over = err
	}
	ends, c.ends = c.ends, nil
	return ends, c.over
}

// cancel cancels the ends. It is called without a mutex: it runs code of the callers, which may take its time.
func (e sharedEnds) cancel(err error) {
	for _, end := range e {
		end.stopRemoval()
		end.cancel(err)
	}
}

// cancelable shows which key package context uses to ask a context for the context that ends it: cancelable has a value
// for no other key.
var cancelable, _ = context.WithCancel(context.Background())

// endOf is for a context that ends with end and has its values elsewhere. It answers package context when that asks for
// the context that ends it. Without this answer a child context would cost a goroutine, and context.Cause would find
// the parent's cause. For any other key it returns nil.
func endOf(end context.Context, key any) any {
	if cancelable.Value(key) == nil {
		return nil
	}
	return end.Value(key)
}

// leaseContext carries the lease that a context belongs to, and the section under it. The fence in the context does not
// suffice: it may come from another process or another locker, and a fence of the same name around it would hide a
// fence of this locker.
type leaseContext struct {
	context.Context                 // the parent
	end             context.Context // ends with the parent, or with the lease or section
	lease           *Lease
	section         *section // of an RWMutex, or nil
}

// Done is closed at the end.
func (c *leaseContext) Done() <-chan struct{} { return c.end.Done() }

// Err returns nil before the end.
func (c *leaseContext) Err() error { return c.end.Err() }

// leaseKey asks a context for its innermost *leaseContext.
type leaseKey struct{}

// Value answers for the lease before the parent does, so the innermost section is found first.
func (c *leaseContext) Value(key any) any {
	if _, ok := key.(leaseKey); ok {
		return c
	}
	if end := endOf(c.end, key); end != nil {
		return end
	}
	return c.Context.Value(key)
}

// nested returns ErrNested if ctx belongs to a section that holds the lock by a lease of this locker, and that lease
// still stands. A section of an RWMutex stands until its holder unlocks it, even if it was lost. A caller that waited
// inside such a section would wait for itself: the section cannot end before the call returns. This applies to a reader
// too, as soon as a writer queues between its two read locks.
//
// An owner is exempt from the sections of other owners: reentrant.Fork states that it runs concurrently with its
// parent. Its own sections count, because package reentrant asks for a lock that its owner holds only if it does not
// know of that hold.
func (l *Locker) nested(ctx context.Context, name, owner string) error {
	for c := innermostLease(ctx); c != nil; c = innermostLease(c.Context) {
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

// innermostLease returns the innermost section that ctx belongs to, of any locker, or nil. The sections around it are
// found from its parent on.
func innermostLease(ctx context.Context) *leaseContext {
	c, _ := ctx.Value(leaseKey{}).(*leaseContext)
	return c
}

// stands reports whether the section that the context belongs to has not ended.
func (c *leaseContext) stands() bool {
	if c.section != nil {
		return c.section.stands()
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

// endedContext returns a child of parent that is already cancelled.
func endedContext(parent context.Context, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	cancel(cause)
	return ctx
}

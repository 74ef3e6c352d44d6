package rwlock

import (
	"context"
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
	cancel context.CancelCauseFunc
	stay   func() bool // cancels the removal from sharedEnds at its end
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
	end.stay = context.AfterFunc(end.Context, func() { // a parent that has ended leaves nothing behind
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
		end.stay()
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

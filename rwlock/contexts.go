package rwlock

import (
	"context"
	"sync"
)

// contexts are those that end with one lease, or with one section under it. Parents that end together share one end. So
// what is kept grows with the number of parents that can end and have not, and not with the number of calls. The zero
// value is ready.
type contexts struct {
	mu   sync.Mutex // guards what follows; never held over a call of what a caller has made
	over error      // why they have ended; nil before
	ends sharedEnds
}

// sharedEnds are found by the Done channel of the parents.
type sharedEnds map[<-chan struct{}]*sharedEnd

// sharedEnd ends with the parents that have one Done channel, or with what the contexts belong to.
type sharedEnd struct {
	context.Context
	cancel context.CancelCauseFunc
	stay   func() bool // undoes that it is taken out at its end
}

// endWith returns a context that ends with a parent and with all the others. Its values are of no meaning.
func (c *contexts) endWith(parent context.Context) context.Context {
	done := parent.Done()
	c.mu.Lock()
	end := c.ends[done]
	c.mu.Unlock()
	if end != nil {
		return end
	}
	if done == nil { // it never ends, so nothing of it is kept
		parent = context.Background()
	}
	end = new(sharedEnd)
	end.Context, end.cancel = context.WithCancelCause(parent)
	shared, over := c.add(done, end)
	if shared != end { // another call was first, or the end of all
		end.cancel(over)
	}
	if shared == nil {
		return end
	}
	return shared
}

// add keeps a new end for the parents with that Done channel, and returns it, or the one that there is. After the end
// of all it returns nil, and why they have ended.
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

// finish is the end of all, once: the first cause counts. It returns that, and what the caller has to cancel with it.
func (c *contexts) finish(err error) (over error, ends sharedEnds) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil {
		c.over = err
	}
	over, ends, c.ends = c.over, c.ends, nil
	return over, ends
}

// cancel ends them. It is called without a mutex: it calls what the callers have made, and each takes its time.
func (e sharedEnds) cancel(err error) {
	for _, end := range e {
		end.stay()
		end.cancel(err)
	}
}

// cancelable tells by which key package context asks a context for what ends it: it has a value for no other.
var cancelable, _ = context.WithCancel(context.Background())

// endOf answers for a context that ends with end and has its values elsewhere, where package context asks for what ends
// it. Without that a child of it would cost a goroutine, and context.Cause would find the parent's cause. It returns
// nil for any other key.
func endOf(end context.Context, key any) any {
	if cancelable.Value(key) == nil {
		return nil
	}
	return end.Value(key)
}

// Package ctxend ends contexts with what was held, such as a lease, and keeps nothing of those that have ended before.
package ctxend

import (
	"context"
	"sync"
)

// Set is the set of contexts that end with one lease, or with one section under it. Parents that end together share one
// end. So its size grows with the number of parents that can end and have not ended, and not with the number of calls.
// The zero value is ready.
type Set struct {
	mu   sync.Mutex // guards the fields below; never held across a call into a caller's context
	over error      // why they have ended; nil before that
	ends Ends
}

// Ends maps the Done channel of parents to their shared end.
type Ends map[<-chan struct{}]*sharedEnd

// sharedEnd is a context that ends with the parents that have one Done channel, or with the set.
type sharedEnd struct {
	context.Context
	cancel      context.CancelCauseFunc
	stopRemoval func() bool // cancels the removal from Ends at its end
}

// Join returns a context with the values of parent, which ends with parent or with the set.
func (s *Set) Join(parent context.Context) Context { return Context{parent, s.endWith(parent)} }

// endWith returns a context that ends with a parent or with the set. Its values have no meaning.
func (s *Set) endWith(parent context.Context) context.Context {
	done := parent.Done()
	s.mu.Lock()
	end := s.ends[done]
	s.mu.Unlock()
	if end != nil {
		return end
	}
	if done == nil { // parent never ends, so it is not kept
		parent = context.Background()
	}
	end = new(sharedEnd)
	end.Context, end.cancel = context.WithCancelCause(parent)
	shared, over := s.add(done, end)
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
func (s *Set) add(done <-chan struct{}, end *sharedEnd) (shared *sharedEnd, over error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shared := s.ends[done]; shared != nil || s.over != nil {
		return shared, s.over
	}
	if s.ends == nil {
		s.ends = make(Ends)
	}
	s.ends[done] = end
	end.stopRemoval = context.AfterFunc(end.Context, func() { // a parent that has ended leaves nothing behind
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ends, done)
	})
	return end, nil
}

// Finish ends the set, once: the first cause counts. It returns the ends that the caller has to cancel, and that cause.
func (s *Set) Finish(err error) (ends Ends, over error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = err
	}
	ends, s.ends = s.ends, nil
	return ends, s.over
}

// Over returns why the set has ended, or nil.
func (s *Set) Over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ends)
}

// Cancel cancels the ends. It is called without a mutex: it runs code of the callers, which may take its time.
func (e Ends) Cancel(err error) {
	for _, end := range e {
		end.stopRemoval()
		Cancel(end.cancel, err)
	}
}

// Cancel cancels a context below one of a caller, at the end of what was held and on any goroutine. The contexts of
// some web frameworks panic once their request is over. Package context asks them last, to leave them: the context
// below and its children have ended by then, so nothing is left to do.
func Cancel(cancel context.CancelCauseFunc, err error) {
	defer func() { _ = recover() }()
	cancel(err)
}

// Guarded returns a context of a caller for the end of what was held: where its Value panics, it has no value.
func Guarded(ctx context.Context) context.Context { return guarded{ctx} }

type guarded struct{ context.Context }

func (g guarded) Value(key any) (value any) {
	defer func() { _ = recover() }()
	return g.Context.Value(key)
}

// Stop calls the function that context.AfterFunc has returned for a context of a caller, and returns its result. It
// panics as Cancel would, only after it has stopped the call.
func Stop(stop func() bool) (stopped bool) {
	defer func() { _ = recover() }()
	stopped = true
	return stop()
}

// Context ends with its parent or with the set that it was joined to.
type Context struct {
	context.Context // the parent
	end             context.Context
}

func (c *Context) Done() <-chan struct{} { return c.end.Done() }

func (c *Context) Err() error { return c.end.Err() }

// cancelable shows which key package context uses to ask a context for the context that ends it: cancelable has a value
// for no other key.
var cancelable, _ = context.WithCancel(context.Background())

// Value returns the value of the parent. But it answers package context when that asks for the context that ends this
// one. Without this answer a child context would cost a goroutine, and context.Cause would find the parent's cause.
func (c *Context) Value(key any) any {
	if cancelable.Value(key) != nil {
		return c.end.Value(key)
	}
	return c.Context.Value(key)
}

package fencing

import (
	"context"
	"iter"
)

// Source returns the current fence of one hold: converting a lock from reading to writing changes its token and its
// mode, never its resource. A lease is a Source. Fence must be safe for concurrent use.
type Source interface{ Fence() Fence }

// NewContext returns a context that carries f in addition to the fences of ctx. In the new context, f replaces a fence
// of the same resource, even a fence with a greater token: the innermost section is the acting one. f is checked where
// it is used, not here.
func NewContext(ctx context.Context, f Fence) context.Context {
	return NewSourceContext(ctx, f)
}

// NewSourceContext is [NewContext] for a fence that may change during the life of the context: each lookup calls
// src.Fence.
func NewSourceContext(ctx context.Context, src Source) context.Context {
	return context.WithValue(ctx, contextKey{}, &link{
		resource: src.Fence().Resource,
		source:   src,
		outer:    innermost(ctx),
	})
}

// FromContext returns the fence that ctx carries for resource, and whether there is one.
func FromContext(ctx context.Context, resource string) (Fence, bool) {
	for l := innermost(ctx); l != nil; l = l.outer {
		if l.resource == resource {
			return l.source.Fence(), true
		}
	}
	return Fence{}, false
}

// Require is [FromContext] for a caller that needs a fence: a missing fence is an error that matches [ErrMissing] and
// names the resource. It does not report whether the lock is still held: ctx ends with the lock, and a guard refuses
// the fence after it has accepted a newer one.
func Require(ctx context.Context, resource string) (Fence, error) {
	if f, ok := FromContext(ctx, resource); ok {
		return f, nil
	}
	return Fence{}, missing(resource)
}

// All yields the fences that ctx carries, one for each resource, the one added last first.
func All(ctx context.Context) iter.Seq[Fence] {
	return func(yield func(Fence) bool) {
		first := innermost(ctx)
		for l := first; l != nil; l = l.outer {
			if !first.hides(l) && !yield(l.source.Fence()) {
				return
			}
		}
	}
}

type contextKey struct{}

// link is one fence of a context. Links form a list from the innermost fence
// outwards, so adding one shares the rest.
type link struct {
	resource string
	source   Source
	outer    *link
}

func innermost(ctx context.Context) *link {
	l, _ := ctx.Value(contextKey{}).(*link)
	return l
}

// hides reports whether a link from l up to, but not including, other has the same resource as other. A context has few
// fences, so a linear search is faster than a set.
func (l *link) hides(other *link) bool {
	for ; l != other; l = l.outer {
		if l.resource == other.resource {
			return true
		}
	}
	return false
}

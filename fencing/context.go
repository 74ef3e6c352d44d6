package fencing

import (
	"context"
	"iter"
)

// Source yields the fence of one hold as it is now: converting a lock from
// reading to writing changes its token and its mode, never its resource. A lease
// is a Source. Fence must be safe for concurrent use.
type Source interface{ Fence() Fence }

// NewContext returns a context that carries f beside the fences that ctx has. A
// fence of the same resource is replaced for the new context, whichever token is
// greater: the innermost section is the one that acts. f is not checked here but
// where it is used.
func NewContext(ctx context.Context, f Fence) context.Context {
	return NewSourceContext(ctx, f)
}

// NewSourceContext is [NewContext] for a fence that may change while the context
// lives: whoever looks gets what src yields at that moment.
func NewSourceContext(ctx context.Context, src Source) context.Context {
	return context.WithValue(ctx, contextKey{}, &link{
		resource: src.Fence().Resource,
		source:   src,
		outer:    innermost(ctx),
	})
}

// FromContext returns the fence that ctx carries for resource, and whether there
// is one.
func FromContext(ctx context.Context, resource string) (Fence, bool) {
	for l := innermost(ctx); l != nil; l = l.outer {
		if l.resource == resource {
			return l.source.Fence(), true
		}
	}
	return Fence{}, false
}

// Require is [FromContext] for those who cannot go on without: a missing fence
// is an error that matches [ErrMissing] and names the resource. That the lock is
// still held it does not say: ctx ends with the lock, and a guard refuses the
// fence once a newer one has been there.
func Require(ctx context.Context, resource string) (Fence, error) {
	if f, ok := FromContext(ctx, resource); ok {
		return f, nil
	}
	return Fence{}, missing(resource)
}

// All yields the fences that ctx carries, one for each resource, the one added
// last first.
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

// hides reports whether a link between l and the given one, l included, has the
// same resource. A context has a handful of fences: looking beats a set.
func (l *link) hides(other *link) bool {
	for ; l != other; l = l.outer {
		if l.resource == other.resource {
			return true
		}
	}
	return false
}

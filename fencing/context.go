package fencing

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"
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
// names the resource, and those whose fences ctx carries: beside the right name a typing mistake is seen. It does not
// report whether the lock is still held: ctx ends with the lock, and a guard refuses the fence after it has accepted a
// newer one.
func Require(ctx context.Context, resource string) (Fence, error) {
	if f, ok := FromContext(ctx, resource); ok {
		return f, nil
	}
	return Fence{}, fmt.Errorf("%w%s", missing(resource), others(ctx))
}

// mostOthers are the resources that an error names beside the missing one.
const mostOthers = 5

// others says in an error whose fences ctx carries, or nothing if it carries none.
func others(ctx context.Context) string {
	var b strings.Builder
	n := 0
	for f := range All(ctx) {
		switch n++; {
		case n == 1:
			fmt.Fprintf(&b, "; the context has that of %q", clip(f.Resource))
		case n <= mostOthers:
			fmt.Fprintf(&b, ", %q", clip(f.Resource))
		}
	}
	if n > mostOthers {
		fmt.Fprintf(&b, " and %d more", n-mostOthers)
	}
	return b.String()
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

// Only returns a context that carries those fences of ctx that are of the named resources, and everything else of ctx.
// It is for a call whose receiver needs no other ones, since a message has limits: see [ParseHeader].
//
//	req = req.WithContext(fencing.Only(ctx, "accounts/3"))
//
// A resource of which ctx carries no fence is left out.
func Only(ctx context.Context, resources ...string) context.Context {
	var kept []*link // the innermost first
	for l := innermost(ctx); l != nil; l = l.outer {
		if slices.Contains(resources, l.resource) {
			kept = append(kept, l)
		}
	}
	var chain *link
	for _, l := range slices.Backward(kept) {
		chain = &link{resource: l.resource, source: l.source, outer: chain}
	}
	return context.WithValue(ctx, contextKey{}, chain)
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

// Deadline returns the time until which the hold of ctx's fence of resource is trusted, as its source reports it now.
// ok is false if ctx has no such fence, or if the source knows no deadline: a [Source] knows one if it has a method
// Deadline() time.Time, as a lease does. Each renewal of a lease moves its deadline, so the context itself has none.
// The deadline is the zero time after the hold has ended.
func Deadline(ctx context.Context, resource string) (deadline time.Time, ok bool) {
	for l := innermost(ctx); l != nil; l = l.outer {
		if l.resource == resource {
			dated, ok := l.source.(interface{ Deadline() time.Time })
			if !ok {
				return time.Time{}, false
			}
			return dated.Deadline(), true
		}
	}
	return time.Time{}, false
}

// visit is a running access. An access of the same register from inside it would deadlock: the inner access waits for
// the outer one to end, and the outer one waits for the inner. A write waits at once; a read waits as soon as a write
// queues between the two.
type visit struct {
	of    *register
	over  atomic.Bool // the access has returned
	outer *visit
}

// visitKey is the context key of the innermost *visit.
type visitKey struct{}

func innermostVisit(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// refuseNested returns an error if ctx belongs to a running access of r.
func (r *register) refuseNested(ctx context.Context, f Fence) error {
	for v := innermostVisit(ctx); v != nil; v = v.outer {
		if v.of == r && !v.over.Load() {
			return fmt.Errorf("%w: %v", ErrNested, f)
		}
	}
	return nil
}

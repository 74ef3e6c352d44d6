package fencing

import (
	"context"
	"fmt"
	"sync/atomic"
)

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

// visit runs access under a context that marks it as an access of r.
func (r *register) visit(ctx context.Context, access func(context.Context) error) error {
	v := &visit{of: r, outer: innermostVisit(ctx)}
	defer v.over.Store(true)
	return access(context.WithValue(ctx, visitKey{}, v))
}

package fencing

import (
	"context"
	"fmt"
	"sync/atomic"
)

// visit is an access that runs. Whoever asks for the same register inside it waits for it to end, and it waits for
// whoever asks: a write at once, a read as soon as a write queues between the two.
type visit struct {
	of    *register
	over  atomic.Bool // the access has returned
	outer *visit
}

// visitKey asks a context for its innermost *visit.
type visitKey struct{}

func innermostVisit(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// refuseNested returns an error if ctx belongs to an access of r that still runs.
func (r *register) refuseNested(ctx context.Context, f Fence) error {
	for v := innermostVisit(ctx); v != nil; v = v.outer {
		if v.of == r && !v.over.Load() {
			return fmt.Errorf("%w: %v", ErrNested, f)
		}
	}
	return nil
}

// visit runs access under a context that tells that it comes from inside.
func (r *register) visit(ctx context.Context, access func(context.Context) error) error {
	v := &visit{of: r, outer: innermostVisit(ctx)}
	defer v.over.Store(true)
	return access(context.WithValue(ctx, visitKey{}, v))
}

package fencing_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

// An access inside one of the same resource would wait for itself; in the bubble that would be a deadlock.
func TestAccessInsideItselfIsRefused(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	for _, outer := range []fencing.Mode{fencing.Read, fencing.Write} {
		for _, inner := range []fencing.Mode{fencing.Read, fencing.Write} {
			t.Run(outer.String()+" "+inner.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var w, other fencing.Watermark
					f := fencing.Fence{Resource: "a", Token: 5, Mode: inner}
					b := fencing.Fence{Resource: "b", Token: 5, Mode: fencing.Write}
					var over context.Context
					inA := fencing.Fence{Resource: "a", Token: 5, Mode: outer}
					require.NoError(t, w.Do(t.Context(), inA, func(ctx context.Context) error {
						over = ctx
						require.NoError(t, other.Do(ctx, f, nothing), "another Watermark")
						return w.Do(ctx, b, func(ctx context.Context) error {
							for _, again := range []func() error{
								func() error { return w.Do(ctx, f, nothing) },
								func() error { return w.Derive(context.WithoutCancel(ctx), f, nothing) },
								func() error { return w.Do(ctx, b, nothing) },
								func() error { return w.Reset(ctx, b) },
							} {
								err := again()
								require.ErrorIs(t, err, fencing.ErrNested)
								require.ErrorContains(t, err, "token 5")
							}
							return nil
						})
					}))
					require.NoError(t, w.Do(over, f, nothing), "the access is over")
				})
			})
		}
	}
}

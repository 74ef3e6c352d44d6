package fencing_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Every outcome of the recipe in Example_outcome, with real losses in fake time.
func TestOutcomes(t *testing.T) {
	lost := func(ctx context.Context) context.Context {
		<-ctx.Done()
		return ctx
	}
	for name, tt := range map[string]struct {
		before, after func(l *ledger, ctx context.Context) context.Context
		want          string
		stored        bool
	}{
		"undisturbed": {want: "done", stored: true},
		"lost after the commit": {
			after:  func(_ *ledger, ctx context.Context) context.Context { return lost(ctx) },
			want:   "done, and the lock was lost afterwards",
			stored: true,
		},
		"lost before the write": {
			before: func(_ *ledger, ctx context.Context) context.Context { return lost(ctx) },
			want:   "not done: the lock was lost on the way",
		},
		"late, and refused": { // the error is the refusal and the loss
			before: func(l *ledger, ctx context.Context) context.Context {
				fence, _ := fencing.FromContext(lost(ctx), "accounts/7")
				fence.Token++
				_ = l.guard.Claim(fence)
				return context.WithoutCancel(ctx)
			},
			want: "not done: refused, a newer holder has been here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redis := testredis.NewMini(t)
				locker, err := rwlock.New(redis.Client(t), rwlock.WithoutRenewal())
				require.NoError(t, err)
				defer func() { require.NoError(t, locker.Close()) }()
				l := &ledger{locker: locker, before: undisturbed, after: undisturbed}
				if tt.before != nil {
					l.before = func(ctx context.Context) context.Context { return tt.before(l, ctx) }
				}
				if tt.after != nil {
					l.after = func(ctx context.Context) context.Context { return tt.after(l, ctx) }
				}
				require.Equal(t, tt.want, l.post(t.Context(), "a"))
				require.Equal(t, tt.stored, len(l.entries) == 1)
			})
		})
	}
}

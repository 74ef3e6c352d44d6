package reentrant_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// A section of the plain locker knows of no owner: an owner's first acquisition inside it would wait for it for ever.
// So would one through a second reentrant locker, which does not know of the first one's holds.
func TestAnAcquisitionThatWouldWaitForItselfIsRefused(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, _ *testredis.Mini) {
		p := w.process()
		ctx, _ := owned(t)
		second := reentrant.New(p.remote)
		type doing = func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
		for _, c := range []struct {
			outer, inner doing
			advice       string // whoever nests with package reentrant is not told to
		}{
			{p.remote.Do, p.remote.Do, "; nest with package reentrant"},
			{p.remote.Do, p.Do, "; take that one through package reentrant too"},
			{p.Do, p.remote.RDo, "; take this one through its reentrant.Locker too"},
			{p.Do, second.Do, "; take both through one reentrant.Locker"},
		} {
			err := c.outer(ctx, "a", func(ctx context.Context) error {
				return c.inner(ctx, "a", func(context.Context) error { return nil })
			})
			require.ErrorIs(t, err, rwlock.ErrNested)
			require.ErrorContains(t, err, "the section that ctx comes from"+c.advice)
		}
		require.Empty(t, p.inspect(t, "a").Holders)
	})
}

// A fork runs beside its parent, so it waits for the parent's section like anybody else; and another process joins it.
func TestAForkWaitsForItsParent(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p, q := w.process(), w.process()
		ctx, owner := owned(t)
		entered := make(chan error)
		require.NoError(t, p.Do(ctx, "a", func(ctx context.Context) error {
			fork := reentrant.Fork(context.WithoutCancel(ctx))
			go func() { entered <- p.Do(fork, "a", func(context.Context) error { return nil }) }()
			p.awaitWaiters(t, "a", 1)
			return q.Do(reentrant.AsOwner(ctx, owner), "a", func(context.Context) error { return nil })
		}))
		require.NoError(t, <-entered)
	})
}

package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// The release of the outermost hold is not waited for. A Lock that is sent after it is not refused.
func TestTheLastReleaseInTheBackground(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const way, n = 10 * time.Millisecond, 20
		w.Net.Tuned, w.Net.Way = true, way
		p := start(w, rwlock.WithBackgroundRelease())
		p.remote.WarmUp()
		w.Pass(time.Second)
		for name, use := range map[string]func(ctx context.Context) error{
			"Release": func(ctx context.Context) error {
				ctx = reentrant.WithOwner(ctx)
				outer, err := p.Lock(ctx, "n")
				require.NoError(w, err)
				inner, err := p.RLock(ctx, "n")
				require.NoError(w, err)
				require.NoError(w, inner.Release(ctx))
				return outer.Release(ctx)
			},
			"Do": func(ctx context.Context) error {
				return p.Do(ctx, "n", func(ctx context.Context) error {
					return p.Do(ctx, "n", func(context.Context) error { return nil })
				})
			},
			"single attempt": func(ctx context.Context) error {
				hold, err := p.TryLock(reentrant.WithOwner(ctx), "n")
				require.NoError(w, err)
				return hold.Release(ctx)
			},
		} {
			began := time.Now()
			for range n {
				require.NoError(w, use(w.Ctx), name)
				synctest.Wait() // the release has left
			}
			waits := map[string]time.Duration{"single attempt": n - 1}[name]
			require.Equal(w, (n+waits)*2*way, time.Since(began), name)
			w.Pass(time.Second)
			w.OnlyTokensLeft()
		}
	})
}

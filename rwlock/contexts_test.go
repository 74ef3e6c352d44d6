package rwlock_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

type contextKey string

// held is what contexts can be made of: a lease, or the section of an RWMutex.
type held struct {
	context func(context.Context) context.Context
	ends    func() int
	release func()
}

// everyHeld runs a test with a lease, and with readers of an RWMutex.
func everyHeld(t *testing.T, test func(w *world, h held)) {
	t.Run("lease", func(t *testing.T) {
		inFakeTime(t, func(w *world) {
			lease := w.Process().Take("n", rwlock.Read)
			ends := func() int { return rwlock.LeaseEnds(lease) }
			test(w, held{lease.Context, ends, func() { w.Release(lease) }})
		})
	})
	t.Run("RWMutex", func(t *testing.T) {
		inFakeTime(t, func(w *world) {
			mu := w.Process().RWMutex("n")
			require.NoError(w, mu.RLock(w.Ctx))
			ends := func() int { return rwlock.Ends(mu) }
			test(w, held{mu.Context, ends, func() { require.NoError(w, mu.RUnlock(w.Ctx)) }})
		})
	})
}

// However many contexts are made, those whose parents end together share one end; a parent that has ended leaves none.
func TestContextsDoNotPileUp(t *testing.T) {
	everyHeld(t, func(w *world, h held) {
		server, stop := context.WithCancel(w.Ctx)
		defer stop()
		for i := range 1000 {
			_ = h.context(context.Background())
			_ = h.context(server)
			_ = h.context(context.WithValue(server, contextKey("request"), i))
			_ = h.context(context.WithValue(context.Background(), contextKey("request"), i))
			request, cancel := context.WithTimeout(server, time.Hour)
			require.NoError(w, h.context(request).Err())
			cancel()
		}
		w.Settle()
		require.Equal(w, 2, h.ends(), "of those without an end, and of the server")
		h.release()
	})
}

// Each context has the values and the deadline of its own parent, whatever others share its end.
func TestContextsThatShareAnEndHaveTheirOwnValues(t *testing.T) {
	everyHeld(t, func(w *world, h held) {
		server, stop := context.WithTimeout(w.Ctx, time.Hour)
		defer stop()
		deadline, _ := server.Deadline()
		for _, parent := range []context.Context{context.Background(), server} {
			first := h.context(context.WithValue(parent, contextKey("request"), "first"))
			second := h.context(context.WithValue(parent, contextKey("request"), "second"))
			require.Equal(w, "first", first.Value(contextKey("request")))
			require.Equal(w, "second", second.Value(contextKey("request")))
			require.Nil(w, h.context(parent).Value(contextKey("request")))
			_, err := fencing.Require(second, "n")
			require.NoError(w, err)
			got, bounded := second.Deadline()
			require.Equal(w, parent == server, bounded)
			if bounded {
				require.Equal(w, deadline, got)
			}
		}
		h.release()
	})
}

// A context ends with its parent, with the parent's cause; and with what was held, with the cause of that. So do its
// children, which cost no goroutine.
func TestContextsEndWithTheParentOrTheHold(t *testing.T) {
	everyHeld(t, func(w *world, h held) {
		withParent, cancel := context.WithCancelCause(w.Ctx)
		ctx, other := h.context(withParent), h.context(w.Ctx)
		child, stop := context.WithCancel(ctx)
		defer stop()
		var grandchild context.Context
		before, many := runtime.NumGoroutine(), 500
		for range many {
			grandchild, stop = context.WithTimeout(h.context(context.Background()), time.Hour)
			defer stop()
		}
		require.Less(w, runtime.NumGoroutine(), before+many)

		cause := context.DeadlineExceeded
		cancel(cause)
		require.ErrorIs(w, ctx.Err(), context.Canceled)
		require.ErrorIs(w, child.Err(), context.Canceled)
		require.Equal(w, cause, context.Cause(ctx))
		require.Equal(w, cause, context.Cause(child))
		require.NoError(w, other.Err())
		require.NoError(w, context.Cause(other))

		h.release()
		for _, ended := range []context.Context{other, grandchild} {
			require.ErrorIs(w, ended.Err(), context.Canceled)
			require.ErrorIs(w, context.Cause(ended), rwlock.ErrReleased)
			select {
			case <-ended.Done():
			default:
				require.Fail(w, "not done")
			}
		}
		require.Equal(w, cause, context.Cause(ctx), "it had ended before")
	})
}

// watchedParent tells when a child that ends is taken out of it: that asks for Done.
type watchedParent struct {
	context.Context
	asked func()
}

func (c *watchedParent) Done() <-chan struct{} {
	if c.asked != nil {
		c.asked()
	}
	return c.Context.Done()
}

// To end contexts takes time, and calls what their parents are made of: the RWMutex is not kept for that. Nobody else
// is in meanwhile, and whoever waits is let in after it.
func TestContextsEndWithoutTheMutex(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		mu := p.RWMutex("n")
		require.NoError(w, mu.RLock(w.Ctx))
		parent := &watchedParent{Context: w.Ctx}
		ctx := mu.Context(parent)
		writer := w.Call(w.Ctx, mu.Lock)
		asked := 0
		parent.asked = func() {
			asked++
			require.False(w, rwlock.IsBusy(mu))
			require.True(w, writer.IsWaiting())
			require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired)
			require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
			require.Zero(w, mu.Token())
		}
		require.NoError(w, mu.RUnlock(w.Ctx))
		require.Positive(w, asked)
		require.Error(w, ctx.Err())
		require.NoError(w, writer.Result())
		require.NoError(w, mu.Unlock(w.Ctx))
		w.OnlyTokensLeft()
	})
}

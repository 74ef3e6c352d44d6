package reentrant_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestDoNestsInDo(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		var outer, nested fencing.Fence
		err := p.Do(t.Context(), "a", func(ctx context.Context) error {
			outer, _ = fencing.FromContext(ctx, "a")
			sent := w.scripts()
			defer func() { require.Equal(t, sent, w.scripts()) }()
			return p.RDo(ctx, "a", func(ctx context.Context) error {
				nested, _ = fencing.FromContext(ctx, "a")
				_, owned := reentrant.OwnerFrom(ctx)
				require.True(t, owned)
				require.NoError(t, ctx.Err())
				return nil
			})
		})
		require.NoError(t, err)
		require.NotZero(t, outer.Token)
		require.Equal(t, fencing.Fence{Resource: "a", Token: outer.Token, Mode: fencing.Write}, outer)
		require.Equal(t, outer, nested, "a read in a write counts on the write")
		require.Empty(t, p.inspect(t, "a").Holders)
	})
}

func TestDoKeepsTheOwnerThatIsThere(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, owner := owned(t)
		type doing = func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
		for name, do := range map[string]doing{"Do": p.Do, "RDo": p.RDo} {
			require.NoError(t, do(ctx, name, func(ctx context.Context) error {
				got, _ := reentrant.OwnerFrom(ctx)
				require.Equal(t, owner, got)
				require.Equal(t, owner.String(), p.inspect(t, name).Holders[0].Owner)
				return nil
			}))
		}
	})
}

func TestDoReturnsWhatHappened(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		failure := errors.New("the work failed")
		fail := func(context.Context) error { return failure }
		require.Equal(t, failure, p.Do(t.Context(), "a", fail))
		require.Equal(t, failure, p.RDo(t.Context(), "a", fail))
		require.Empty(t, p.inspect(t, "a").Holders)

		require.PanicsWithValue(t, "boom", func() {
			_ = p.Do(t.Context(), "a", func(context.Context) error { panic("boom") })
		})
		require.Empty(t, p.inspect(t, "a").Holders)

		ctx, _ := owned(t)
		require.NoError(t, p.RDo(ctx, "a", func(ctx context.Context) error {
			require.Equal(t, failure, p.Do(ctx, "a", fail), "upgraded")
			return nil
		}))
	})
}

func TestDoTellsOfALoss(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		failure := errors.New("the work failed")
		ctx, _ := owned(t)
		outer := must(t)(p.Lock(ctx, "a"))
		err := p.Do(ctx, "a", func(ctx context.Context) error {
			loseByFlush(t, w, outer)
			<-ctx.Done() // it ends a moment after Renew has told of the loss
			require.ErrorIs(t, context.Cause(ctx), rwlock.ErrLost)
			return failure
		})
		require.ErrorIs(t, err, failure)
		requireLost(t, err, "a", outer.Token(), rwlock.Taken)
		require.ErrorIs(t, outer.Release(ctx), rwlock.ErrLost)
	})
}

// A hold that is left behind would keep the lock renewed for ever.
func TestDoEndsAHoldLeftBehind(t *testing.T) {
	panics := errors.New("the nested section panics")
	for name, end := range map[string]func() error{
		"with nil":    func() error { return nil },
		"with a loss": func() error { return &rwlock.LostError{Name: "another"} },
		"by a panic":  func() error { panic(panics) },
	} {
		t.Run(name, func(t *testing.T) {
			onServers(t, func(t *testing.T, w *world) {
				p := w.process()
				var left []*reentrant.Hold
				var inner context.Context
				section := func(ctx context.Context) error {
					for range 2 {
						left = append(left, must(t)(p.Lock(ctx, "a")))
					}
					inner = left[1].Context(ctx)
					return end()
				}
				err := recovered(func() error { return p.Do(t.Context(), "a", section) })
				if errors.Is(err, panics) {
					require.Equal(t, panics, err, "the panic goes on as it was")
				} else {
					require.ErrorIs(t, err, reentrant.ErrOrder)
					require.ErrorContains(t, err, `lock "a": it is hold 1 of 3`)
				}
				require.ErrorIs(t, left[0].Lease().Err(), rwlock.ErrReleased)
				requireReleased(t, inner)
				require.Zero(t, p.remote.Stats().Held)
				require.Empty(t, p.inspect(t, "a").Holders)

				ctx, _ := owned(t)
				fresh := must(t)(p.TryLock(ctx, "a"))
				for _, h := range left {
					require.NoError(t, h.Release(ctx), "it has ended already")
				}
				require.NoError(t, fresh.Lease().Err())
				require.NoError(t, fresh.Release(ctx))
			})
		})
	}
}

// Only what nests in the Do's own hold ends with it.
func TestANestedDoLeavesTheHoldsAroundIt(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, _ := owned(t)
		outer := must(t)(p.Lock(ctx, "a"))
		other := must(t)(p.Lock(ctx, "b"))
		var left *reentrant.Hold
		err := p.Do(ctx, "a", func(ctx context.Context) error {
			left = must(t)(p.RLock(ctx, "a"))
			return nil
		})
		require.ErrorIs(t, err, reentrant.ErrOrder)
		require.NoError(t, outer.Lease().Err())
		require.NoError(t, other.Lease().Err())
		require.NoError(t, left.Release(ctx))
		require.NoError(t, outer.Release(ctx), "nothing nests in it any more")
		require.NoError(t, other.Release(ctx))
		require.Empty(t, p.inspect(t, "a").Holders)
	})
}

// recovered returns the error that f returns or panics with.
func recovered(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	return f()
}

func TestTheContextOfANestedHoldEndsWithIt(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, _ := owned(t)
		outer := must(t)(p.Lock(ctx, "a"))
		around := outer.Context(ctx)
		nested := must(t)(p.Lock(around, "a"))
		inner := nested.Context(around)
		fence, ok := fencing.FromContext(inner, "a")
		require.True(t, ok)
		require.Equal(t, outer.Lease().Fence(), fence)

		require.NoError(t, nested.Release(ctx))
		requireReleased(t, inner)
		late := nested.Context(around)
		requireReleased(t, late)
		require.NoError(t, around.Err())

		require.NoError(t, outer.Release(ctx))
		requireReleased(t, around)
	})
}

// requireReleased checks that a context has ended by the release of its hold, and names the lock.
func requireReleased(t *testing.T, ctx context.Context) {
	t.Helper()
	require.ErrorIs(t, context.Cause(ctx), rwlock.ErrReleased)
	require.ErrorContains(t, context.Cause(ctx), `lock "a"`)
}

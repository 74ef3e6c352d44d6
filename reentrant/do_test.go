package reentrant_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestDoReturnsWhatHappened(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		failure := errors.New("the work failed")
		fail := func(context.Context) error { return failure }
		require.Equal(w, failure, p.Do(w.Ctx, "a", fail))
		require.Equal(w, failure, p.RDo(w.Ctx, "a", fail))
		require.Empty(w, p.inspect("a").Holders)

		require.PanicsWithValue(w, "boom", func() {
			_ = p.Do(w.Ctx, "a", func(context.Context) error { panic("boom") })
		})
		require.Empty(w, p.inspect("a").Holders)

		ctx, _ := owned(w)
		require.NoError(w, p.RDo(ctx, "a", func(ctx context.Context) error {
			require.Equal(w, failure, p.Do(ctx, "a", fail), "upgraded")
			return nil
		}))
	})
}

func TestDoTellsOfALoss(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		failure := errors.New("the work failed")
		ctx, _ := owned(w)
		outer := must(w)(p.Lock(ctx, "a"))
		err := p.Do(ctx, "a", func(ctx context.Context) error {
			loseByFlush(w, outer)
			<-ctx.Done() // it ends a moment after Renew has told of the loss
			require.ErrorIs(w, context.Cause(ctx), rwlock.ErrLost)
			return failure
		})
		require.ErrorIs(w, err, failure)
		requireLost(w, err, "a", outer.Token(), rwlock.ReasonGone)
		require.ErrorIs(w, outer.Release(ctx), rwlock.ErrLost)
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
			everywhere(t, func(w *world) {
				p := start(w)
				var left []*reentrant.Hold
				var inner context.Context
				section := func(ctx context.Context) error {
					for range 2 {
						left = append(left, must(w)(p.Lock(ctx, "a")))
					}
					inner = left[1].Context(ctx)
					return end()
				}
				err := recovered(func() error { return p.Do(w.Ctx, "a", section) })
				if errors.Is(err, panics) {
					require.Equal(w, panics, err, "the panic goes on as it was")
				} else {
					require.ErrorIs(w, err, reentrant.ErrOrder)
					require.ErrorContains(w, err, `lock "a": it is hold 1 of 3`)
				}
				require.ErrorIs(w, left[0].Lease().Err(), rwlock.ErrReleased)
				requireReleased(w, inner)
				require.Zero(w, p.remote.Stats().Held)
				require.Empty(w, p.inspect("a").Holders)

				ctx, _ := owned(w)
				fresh := must(w)(p.TryLock(ctx, "a"))
				for _, h := range left {
					require.NoError(w, h.Release(ctx), "it has ended already")
				}
				require.NoError(w, fresh.Lease().Err())
				require.NoError(w, fresh.Release(ctx))
			})
		})
	}
}

// Only what nests in the Do's own hold ends with it.
func TestANestedDoLeavesTheHoldsAroundIt(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		ctx, _ := owned(w)
		outer := must(w)(p.Lock(ctx, "a"))
		other := must(w)(p.Lock(ctx, "b"))
		var left *reentrant.Hold
		err := p.Do(ctx, "a", func(ctx context.Context) error {
			left = must(w)(p.RLock(ctx, "a"))
			return nil
		})
		require.ErrorIs(w, err, reentrant.ErrOrder)
		require.NoError(w, outer.Lease().Err())
		require.NoError(w, other.Lease().Err())
		require.NoError(w, left.Release(ctx))
		require.NoError(w, outer.Release(ctx), "nothing nests in it any more")
		require.NoError(w, other.Release(ctx))
		require.Empty(w, p.inspect("a").Holders)
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

// requireReleased checks that a context has ended by the release of its hold, and names the lock.
func requireReleased(w *world, ctx context.Context) {
	w.Helper()
	require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
	require.ErrorContains(w, context.Cause(ctx), `lock "a"`)
}

// A TryDo enters where its owner is already, and leaves the work to another owner that is.
func TestTryDoNestsAndIsRefused(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		type doing = func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) (bool, error)
		for name, do := range map[string]doing{"TryDo": p.TryDo, "TryRDo": p.TryRDo} {
			nothing := func(context.Context) error { return nil }
			ran, err := p.TryDo(w.Ctx, name, func(ctx context.Context) error {
				ran, err := do(ctx, name, nothing)
				require.True(w, ran, "nested")
				require.NoError(w, err)
				ran, err = do(w.Ctx, name, nothing)
				require.False(w, ran, "another owner")
				return err
			})
			require.True(w, ran)
			require.NoError(w, err)
			ran, err = do(w.Ctx, name, nil)
			require.False(w, ran)
			require.ErrorIs(w, err, rwlock.ErrOption)
			require.Empty(w, p.inspect(name).Holders)
		}
	})
}

// Each Do says of its own work whether it had returned nil, also where all share one lease.
func TestCompletedInNestedSections(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		for _, returned := range []bool{false, true} {
			var inner error
			err := p.Do(w.Ctx, "a", func(ctx context.Context) error {
				inner = p.Do(ctx, "a", func(ctx context.Context) error {
					loseByFlush(w, must(w)(p.Lock(ctx, "a")))
					<-ctx.Done()
					return nil
				})
				if returned {
					return inner
				}
				return nil
			})
			require.ErrorIs(w, inner, rwlock.ErrLost)
			require.True(w, rwlock.Completed(inner))
			require.ErrorIs(w, err, rwlock.ErrLost)
			require.Equal(w, !returned, rwlock.Completed(err), "%v", err)
		}
	})
}

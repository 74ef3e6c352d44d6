package reentrant_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
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

		require.PanicsWithValue(w, "boom", func() { _ = p.Do(w.Ctx, "a", func(context.Context) error { panic("boom") }) })
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
					expect.Fails(w, err, reentrant.ErrOrder, `lock "a": it is hold 1 of 3`)
				}
				require.ErrorIs(w, left[0].Lease().Err(), rwlock.ErrReleased)
				expect.Fails(w, context.Cause(inner), rwlock.ErrReleased, `lock "a"`)
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
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		outer := must(w)(p.Lock(ctx, "a"))
		err := p.Do(ctx, "a", func(ctx context.Context) error { return expect.ErrorOf(p.RLock(ctx, "a")) })
		require.ErrorIs(w, err, reentrant.ErrOrder)
		require.NoError(w, outer.Lease().Err())
		require.NoError(w, outer.Release(ctx), "nothing nests in it any more")
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

func requireLost(w *world, err error, name string, token fencing.Token, reason rwlock.Reason) {
	w.Helper()
	loss := testkit.As[*rwlock.LostError](w, err)
	require.Equal(w, name, loss.Name)
	require.Equal(w, token, loss.Token)
	require.Equal(w, reason, loss.Reason)
}

func TestNothingNestsInALostSection(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			name := mode.String()
			ctx, _ := owned(w)
			outer := must(w)(p.take(ctx, name, mode, false))
			nested := must(w)(p.take(ctx, name, mode, false))
			loseByFlush(w, outer)

			for _, wanted := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
				for _, try := range []bool{false, true} {
					hold, err := p.take(ctx, name, wanted, try)
					requireLost(w, err, name, outer.Token(), rwlock.ReasonGone)
					require.Equal(w, outer.Lease().Err(), err, "as it is")
					require.Nil(w, hold)
				}
			}
			// The work's own context has ended with the same cause; the loss is the answer all the same.
			_, err := p.take(nested.Context(ctx), name, mode, false)
			requireLost(w, err, name, outer.Token(), rwlock.ReasonGone)

			requireLost(w, nested.Release(ctx), name, outer.Token(), rwlock.ReasonGone)
			require.NoError(w, nested.Release(ctx), "released, though lost")
			_, err = p.take(ctx, name, mode, false)
			require.ErrorIs(w, err, rwlock.ErrLost, "the outer section is still there")
			requireLost(w, outer.Release(ctx), name, outer.Token(), rwlock.ReasonGone)

			fresh := must(w)(p.take(ctx, name, mode, true))
			require.Equal(w, 1, fresh.Depth())
			require.Greater(w, fresh.Token(), outer.Token())
			require.NoError(w, fresh.Release(ctx))
		}
	})
}

func loseByFlush(w *world, h *reentrant.Hold) {
	w.Helper()
	time.Sleep(time.Millisecond) // in fake time none passes by itself, and without a counter tokens follow the clock
	w.FlushAll()
	require.ErrorIs(w, h.Lease().Renew(w.Ctx), rwlock.ErrLost)
}

func TestNothingNestsAfterClose(t *testing.T) {
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		outer := must(w)(p.Lock(ctx, "a"))
		require.NoError(w, p.remote.Close())
		require.ErrorIs(w, expect.ErrorOf(p.Lock(ctx, "a")), rwlock.ErrReleased)
		require.NoError(w, outer.Release(ctx))
		require.ErrorIs(w, expect.ErrorOf(p.Lock(ctx, "a")), rwlock.ErrClosed)
	})
}

// A nested hold may be held for long, and each request that it serves gets a context of it. A request that has ended
// leaves nothing behind, and those that end together share one end.
func TestContextsOfANestedHoldDoNotPileUp(t *testing.T) {
	asOwner(t, inFakeTime, func(w *world, l *process, ctx context.Context) {
		outer := must(w)(l.Lock(ctx, "n"))
		hold := must(w)(l.RLock(outer.Context(ctx), "n"))
		inner := must(w)(l.Lock(hold.Context(ctx), "n"))
		for range 1000 {
			request, cancel := context.WithTimeout(ctx, time.Hour)
			require.NoError(w, hold.Context(request).Err())
			cancel()
			require.NoError(w, hold.Context(ctx).Err())
			require.NoError(w, hold.Context(context.Background()).Err())
		}
		w.Settle()
		require.Equal(w, 2, reentrant.Ends(hold), "of the test's context, and of those without an end")

		of, within := hold.Context(ctx), inner.Context(ctx)
		require.NoError(w, inner.Release(ctx))
		require.ErrorIs(w, context.Cause(within), rwlock.ErrReleased)
		require.EqualError(w, context.Cause(inner.Context(ctx)), `rwlock: lease released: lock "n"`)
		require.NoError(w, of.Err())
		require.NoError(w, hold.Release(ctx))
		require.ErrorIs(w, context.Cause(of), rwlock.ErrReleased)
		require.NoError(w, outer.Release(ctx))
	})
}

// The release of the outermost hold is not waited for.
func TestTheLastReleaseInTheBackground(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.Net.Tuned, w.Net.Way = true, 10*time.Millisecond
		p := start(w, rwlock.WithBackgroundRelease())
		p.remote.WarmUp()
		w.Pass(time.Second)
		for range 3 {
			ctx, began := reentrant.WithOwner(w.Ctx), time.Now()
			outer := must(w)(p.Lock(ctx, "n"))
			require.NoError(w, must(w)(p.RLock(ctx, "n")).Release(ctx))
			require.NoError(w, outer.Release(ctx))
			require.Equal(w, 2*w.Net.Way, time.Since(began))
			synctest.Wait() // the release has left
		}
	})
}

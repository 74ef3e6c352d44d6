package reentrant_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestNewReportsWhatItCannotWorkWith(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, _ *testredis.Mini) {
		remote := w.process().remote
		ctx, _ := owned(t)
		for field, l := range map[string]*reentrant.Locker{
			"locker":       reentrant.New(nil),
			"option":       reentrant.New(remote, nil),
			"WithMaxDepth": reentrant.New(remote, reentrant.WithMaxDepth(0)),
		} {
			for range 2 {
				_, err := l.Lock(ctx, "a")
				require.ErrorIs(t, err, rwlock.ErrOption)
				require.ErrorContains(t, err, field)
				require.ErrorIs(t, l.RDo(ctx, "a", func(context.Context) error { panic("not reached") }), rwlock.ErrOption)
			}
		}
		require.Zero(t, w.scripts())
	})
}

func TestBadNamesAndOptionsAreRefused(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, _ *testredis.Mini) {
		p := w.process()
		ctx, _ := owned(t)
		for _, name := range []string{"", strings.Repeat("n", 513), "\xff"} {
			_, err := p.Lock(ctx, name)
			require.ErrorIs(t, err, rwlock.ErrOption)
			_, err = p.RLock(elsewhere(t, reentrant.NewOwner()), name)
			require.ErrorIs(t, err, rwlock.ErrOption)
		}
		_, err := p.Lock(ctx, "a", rwlock.WithTTL(time.Millisecond))
		require.ErrorIs(t, err, rwlock.ErrOption)
		require.Zero(t, w.scripts())
		require.NoError(t, must(t)(p.Lock(ctx, "a")).Release(ctx), "a refused acquisition leaves nothing behind")
	})
}

func TestOptionsAreThoseOfTheFirstAcquisition(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, owner := owned(t)
		shared := make([]rwlock.LockOption, 0, 4) // with room for what the package adds: it must not add it there
		outer := must(t)(p.Lock(ctx, "a", append(shared, rwlock.WithMeta("outer"), rwlock.WithTTL(time.Minute))...))
		nested := must(t)(p.Lock(ctx, "a", rwlock.WithMeta("nested"), rwlock.WithTTL(time.Hour)))
		state := p.inspect(t, "a")
		require.Len(t, state.Holders, 1)
		require.Equal(t, "outer", state.Holders[0].Meta)
		require.Equal(t, owner.String(), state.Holders[0].Owner)
		require.LessOrEqual(t, state.Holders[0].Remaining, time.Minute)
		require.Greater(t, state.Holders[0].Remaining, 50*time.Second)
		for _, unused := range shared[:4][2:] {
			require.Nil(t, unused)
		}
		require.NoError(t, nested.Release(ctx))
		require.NoError(t, outer.Release(ctx))
	})
}

func TestAFailedFirstAcquisitionLeavesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		stranger, _ := owned(t)
		held := must(t)(p.Lock(stranger, "a"))
		ctx, _ := owned(t)
		for range 2 {
			_, err := p.TryLock(ctx, "a")
			require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		}
		waiting, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err := p.Lock(waiting, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, held.Release(stranger))
		hold := must(t)(p.Lock(ctx, "a"))
		require.Equal(t, 1, hold.Depth())
		require.NoError(t, hold.Release(ctx))
	})
}

func TestAnEndedContextTakesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, _ := owned(t)
		outer := must(t)(p.Lock(ctx, "a"))
		reason := errors.New("the caller has gone")
		ended, cancel := context.WithCancelCause(ctx)
		cancel(reason)
		_, err := p.Lock(ended, "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.NoError(t, outer.Release(ctx), "nothing nests in it")
	})
}

package reentrant_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func requireLost(t *testing.T, err error, name string, token fencing.Token, reason rwlock.Reason) {
	t.Helper()
	var loss *rwlock.LostError
	require.ErrorAs(t, err, &loss)
	require.Equal(t, name, loss.Name)
	require.Equal(t, token, loss.Token)
	require.Equal(t, reason, loss.Reason)
}

func TestNothingNestsInALostSection(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			name := mode.String()
			ctx, _ := owned(t)
			outer := must(t)(p.take(ctx, name, mode, false))
			nested := must(t)(p.take(ctx, name, mode, false))
			loseByFlush(t, w, outer)

			for _, wanted := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
				for _, try := range []bool{false, true} {
					hold, err := p.take(ctx, name, wanted, try)
					requireLost(t, err, name, outer.Token(), rwlock.Taken)
					require.Equal(t, outer.Lease().Err(), err, "as it is")
					require.Nil(t, hold)
				}
			}
			// The work's own context has ended with the same cause; the loss is the answer all the same.
			_, err := p.take(nested.Context(ctx), name, mode, false)
			requireLost(t, err, name, outer.Token(), rwlock.Taken)

			requireLost(t, nested.Release(ctx), name, outer.Token(), rwlock.Taken)
			require.NoError(t, nested.Release(ctx), "released, though lost")
			_, err = p.take(ctx, name, mode, false)
			require.ErrorIs(t, err, rwlock.ErrLost, "the outer section is still there")
			requireLost(t, outer.Release(ctx), name, outer.Token(), rwlock.Taken)

			fresh := must(t)(p.take(ctx, name, mode, true))
			require.Equal(t, 1, fresh.Depth())
			require.Greater(t, fresh.Token(), outer.Token())
			require.NoError(t, fresh.Release(ctx))
		}
	})
}

func loseByFlush(t *testing.T, w *world, h *reentrant.Hold) {
	t.Helper()
	time.Sleep(time.Millisecond) // in fake time none passes by itself, and without a counter tokens follow the clock
	client := w.connect()
	require.NoError(t, client.Do(t.Context(), client.B().Flushall().Build()).Error())
	require.ErrorIs(t, h.Lease().Renew(t.Context()), rwlock.ErrLost)
}

func TestTheOuterSectionExpiresWhileTheInnerOneRuns(t *testing.T) {
	inFakeTime(t, func(t *testing.T, _ *world, mini *testredis.Mini) {
		link := mini.NewLink()
		remote, err := rwlock.New(link.Client(t))
		require.NoError(t, err)
		defer func() { _ = remote.Close() }()
		p := reentrant.New(remote)
		ctx, _ := owned(t)
		outer := must(t)(p.Lock(ctx, "a"))
		nested := must(t)(p.Lock(ctx, "a"))
		inner := nested.Context(ctx)

		link.Blackhole(testredis.Both)
		<-inner.Done()
		requireLost(t, context.Cause(inner), "a", outer.Token(), rwlock.NoQuorum)
		_, err = p.Lock(ctx, "a")
		requireLost(t, err, "a", outer.Token(), rwlock.NoQuorum)
		requireLost(t, nested.Release(ctx), "a", outer.Token(), rwlock.NoQuorum)
		requireLost(t, outer.Release(ctx), "a", outer.Token(), rwlock.NoQuorum)
	})
}

func TestNothingNestsInAReleasedLease(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, _ := owned(t)
		outer := must(t)(p.Lock(ctx, "a"))
		require.NoError(t, outer.Lease().Release(ctx)) // what one must not do

		_, err := p.Lock(ctx, "a")
		require.ErrorIs(t, err, rwlock.ErrReleased)
		require.ErrorContains(t, err, `"a"`)
		require.NoError(t, outer.Release(ctx))
		require.NoError(t, must(t)(p.Lock(ctx, "a")).Release(ctx))
	})
}

func TestNothingNestsAfterClose(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, _ := owned(t)
		outer := must(t)(p.Lock(ctx, "a"))
		require.NoError(t, p.remote.Close())
		_, err := p.Lock(ctx, "a")
		require.ErrorIs(t, err, rwlock.ErrReleased)
		require.NoError(t, outer.Release(ctx))
		_, err = p.Lock(ctx, "a")
		require.ErrorIs(t, err, rwlock.ErrClosed)
	})
}

package reentrant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func requireLost(w *world, err error, name string, token fencing.Token, reason rwlock.Reason) {
	w.Helper()
	var loss *rwlock.LostError
	require.ErrorAs(w, err, &loss)
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

func TestNothingNestsInAReleasedLease(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		ctx, _ := owned(w)
		outer := must(w)(p.Lock(ctx, "a"))
		require.NoError(w, outer.Lease().Release(ctx)) // what one must not do

		_, err := p.Lock(ctx, "a")
		require.ErrorIs(w, err, rwlock.ErrReleased)
		require.ErrorContains(w, err, `"a"`)
		require.NoError(w, outer.Release(ctx))
		require.NoError(w, must(w)(p.Lock(ctx, "a")).Release(ctx))
	})
}

func TestNothingNestsAfterClose(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		ctx, _ := owned(w)
		outer := must(w)(p.Lock(ctx, "a"))
		require.NoError(w, p.remote.Close())
		_, err := p.Lock(ctx, "a")
		require.ErrorIs(w, err, rwlock.ErrReleased)
		require.NoError(w, outer.Release(ctx))
		_, err = p.Lock(ctx, "a")
		require.ErrorIs(w, err, rwlock.ErrClosed)
	})
}

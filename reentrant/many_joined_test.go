package reentrant_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// Locks that a call has joined in another process are given back together: a server that does not answer delays the
// release of all of them, and a call that fails, by one release timeout.
func TestJoinedLocksAreReleasedTogether(t *testing.T) {
	const releaseTimeout = 2 * time.Second
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	inFakeTime(t, func(w *world) {
		p, q := start(w), start(w)
		ctx, owner := owned(w)
		outer := all(w)(p.LockAll(ctx, rwlock.Writes(names...)))
		there := reentrant.AsOwner(w.Ctx, owner)
		joined := all(w)(q.LockAll(there, rwlock.Writes(names...)))
		q.remote.Link.Blackhole(testredis.Both)
		began := time.Now()
		require.Error(w, joined.Release(there))
		require.LessOrEqual(w, time.Since(began), releaseTimeout+100*time.Millisecond)
		q.remote.Link.Restore()
		w.Pass(20 * time.Second)
		require.NoError(w, outer.Release(ctx))
	})
	inFakeTime(t, func(w *world) {
		p, q := start(w), start(w)
		ctx, owner := owned(w)
		outer := all(w)(p.LockAll(ctx, rwlock.Writes(names...)))
		q.remote.WarmUp()
		q.remote.Link.Delay(5 * time.Millisecond)
		call := w.Call(reentrant.AsOwner(w.Ctx, owner), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := q.LockAll(ctx, rwlock.Writes(names...))
			require.Error(w, err)
			require.LessOrEqual(w, time.Since(began), 200*time.Millisecond+releaseTimeout+100*time.Millisecond)
			return nil
		})
		w.Pass(45 * time.Millisecond) // it has joined some of them
		q.remote.Link.Blackhole(testredis.Both)
		require.NoError(w, call.Result())
		q.remote.Link.Restore()
		w.Pass(20 * time.Second)
		require.NoError(w, outer.Release(ctx))
	})
}

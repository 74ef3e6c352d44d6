package reentrant_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F15: a writer that waits holds back new readers, but not one that reads already and goes deeper.
func TestFault15AReaderThatReentersPassesAWaitingWriter(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second, others := start(w), start(w), start(w)
		ctx, owner := owned(w)
		reading := must(w)(first.RLock(ctx, "a"))
		stranger, _ := owned(w)
		written := make(chan error)
		go func() { written <- others.Do(stranger, "a", func(context.Context) error { return nil }) }()
		w.UntilWaiting("a", 1)

		newcomer, _ := owned(w)
		_, err := others.TryRLock(newcomer, "a")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired, "a new reader waits behind the writer")

		deeper := must(w)(first.RLock(ctx, "a"))
		there := elsewhere(w, owner)
		joined := must(w)(second.RLock(there, "a"))
		require.Equal(w, reading.Token(), joined.Token())
		require.Len(w, first.inspect("a").Waiters, 1)

		require.NoError(w, joined.Release(there))
		require.NoError(w, deeper.Release(ctx))
		require.Len(w, first.inspect("a").Waiters, 1, "the outer section goes on")
		require.NoError(w, reading.Release(ctx))
		require.NoError(w, <-written)
	})
}

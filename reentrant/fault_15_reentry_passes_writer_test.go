package reentrant_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F15: a writer that waits holds back new readers, but not one that reads already and goes deeper: the writer waits for
// the end of its outer section, so it would never get there.
func TestFault15AReaderThatReentersPassesAWaitingWriter(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		first, second, others := w.process(), w.process(), w.process()
		ctx, owner := owned(t)
		reading := must(t)(first.RLock(ctx, "a"))
		stranger, _ := owned(t)
		written := make(chan error)
		go func() { written <- others.Do(stranger, "a", func(context.Context) error { return nil }) }()
		others.awaitWaiters(t, "a", 1)

		newcomer, _ := owned(t)
		_, err := others.TryRLock(newcomer, "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired, "a new reader waits behind the writer")

		deeper := must(t)(first.RLock(ctx, "a"))
		there := elsewhere(t, owner)
		joined := must(t)(second.RLock(there, "a"))
		require.Equal(t, reading.Token(), joined.Token())
		require.Len(t, first.inspect(t, "a").Waiters, 1)

		require.NoError(t, joined.Release(there))
		require.NoError(t, deeper.Release(ctx))
		require.Len(t, first.inspect(t, "a").Waiters, 1, "the outer section goes on")
		require.NoError(t, reading.Release(ctx))
		require.NoError(t, <-written)
	})
}

package rwlock_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F1: every acquisition has an id; the same id again changes nothing and returns the same token.

func TestF01AcquireWhoseReplyIsLostIsOneHold(t *testing.T) {
	inFakeTime(t, func(w *world) {
		for _, mode := range bothModes {
			p, q := w.Process(), w.Process()
			p.WarmUp()
			var asked atomic.Int32
			p.Link.OnCommand(func(cmd []string) {
				if testkit.Running(scripts.Acquire)(cmd) {
					asked.Add(1)
				}
			})
			lost := p.Link.DropNextReply(testkit.Running(scripts.Acquire))
			lease := p.Take("n", mode)
			<-lost
			require.EqualValues(w, 2, asked.Load(), "it was sent again")

			s := w.Inspect("n")
			require.Len(w, s.Holders, 1)
			require.Equal(w, 1, s.Holders[0].Count)
			require.Equal(w, lease.Token(), s.Token, "nothing was minted for the second request")
			require.ErrorIs(w, q.TryOnce("n"), rwlock.ErrNotAcquired)

			w.Release(lease)
			require.NoError(w, q.TryOnce("n"), "one release for one acquisition")
			require.EqualValues(w, 0, p.Stats().Held)
			w.UntilOnlyTokens()
		}
	})
}

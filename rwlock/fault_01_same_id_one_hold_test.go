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
	everywhere(t, func(w *world) {
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

func TestF01EveryRequestTwiceIsOneHold(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.Process(), w.Process()
		for _, process := range []*process{p, q} {
			process.Link.Duplicate(func(cmd []string) bool { return testkit.ScriptOf(cmd) != "" }, nil)
		}
		for range 3 {
			first, second := p.Take("n", rwlock.Read), q.Take("n", rwlock.Read)
			s := w.Inspect("n")
			require.Len(w, s.Holders, 2)
			for _, h := range s.Holders {
				require.Equal(w, 1, h.Count)
			}
			require.Equal(w, second.Token(), s.Token)
			require.NoError(w, first.Renew(w.Ctx))
			writer := p.Queue("n", rwlock.Write)
			w.Release(first)
			require.True(w, writer.IsWaiting(), "the release of one reader counted twice")
			require.ErrorIs(w, w.Observer().TryOnce("n"), rwlock.ErrNotAcquired)
			w.Release(second)
			w.Release(writer.Granted())
			require.Empty(w, w.Inspect("n").Holders)
			w.OnlyTokensLeft()
		}
	})
}

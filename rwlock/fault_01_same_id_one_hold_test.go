package rwlock_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F1: every acquisition has an id; the same id again changes nothing and returns the same token.

func TestF01AcquireWhoseReplyIsLostIsOneHold(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, mode := range bothModes {
			p, q := w.process(), w.process()
			p.warmUp()
			var asked atomic.Int32
			p.link.OnCommand(func(cmd []string) {
				if running(scripts.Acquire)(cmd) {
					asked.Add(1)
				}
			})
			lost := p.link.DropNextReply(running(scripts.Acquire))
			lease := p.lock("n", mode)
			<-lost
			require.EqualValues(w.t, 2, asked.Load(), "it was sent again")

			s := w.inspect("n")
			require.Len(w.t, s.Holders, 1)
			require.Equal(w.t, 1, s.Holders[0].Count)
			require.Equal(w.t, lease.Token(), s.Token, "nothing was minted for the second request")
			require.ErrorIs(w.t, q.acquireOnce("n"), rwlock.ErrNotAcquired)

			w.release(lease)
			require.NoError(w.t, q.acquireOnce("n"), "one release for one acquisition")
			require.EqualValues(w.t, 0, p.Stats().Held)
			w.untilOnlyTokens()
		}
	})
}

func TestF01EveryRequestTwiceIsOneHold(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		for _, process := range []*process{p, q} {
			process.link.Duplicate(func(cmd []string) bool { return scriptOf(cmd) != "" }, nil)
		}
		for range 3 {
			first, second := p.lock("n", rwlock.Read), q.lock("n", rwlock.Read)
			s := w.inspect("n")
			require.Len(w.t, s.Holders, 2)
			for _, h := range s.Holders {
				require.Equal(w.t, 1, h.Count)
			}
			require.Equal(w.t, second.Token(), s.Token)
			require.NoError(w.t, first.Renew(w.ctx))
			writer := p.queue("n", rwlock.Write)
			w.release(first)
			require.True(w.t, writer.isWaiting(), "the release of one reader counted twice")
			require.ErrorIs(w.t, w.observer.acquireOnce("n"), rwlock.ErrNotAcquired)
			w.release(second)
			w.release(writer.granted())
			require.Empty(w.t, w.inspect("n").Holders)
			w.onlyTokensLeft()
		}
	})
}

// acquireOnce tries to lock for writing, and gives back at once what it gets.
func (p *process) acquireOnce(name string) error {
	lease, err := p.TryLock(p.w.ctx, name)
	if err == nil {
		err = lease.Release(p.w.ctx)
	}
	return err
}

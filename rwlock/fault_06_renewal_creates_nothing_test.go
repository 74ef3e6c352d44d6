package rwlock_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F6: renew only what exists; never create; never touch another's entry.

// A renewal that was sent long ago reaches the server late, over another connection.
func TestF06LateRenewalBringsNothingBack(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, mode := range bothModes {
			p, q := w.process(), w.process()
			var mu sync.Mutex
			var renewal []string
			p.link.OnCommand(func(cmd []string) {
				if running(scripts.Renew)(cmd) {
					mu.Lock()
					defer mu.Unlock()
					renewal = slices.Clone(cmd)
				}
			})
			again := func() []int64 {
				mu.Lock()
				defer mu.Unlock()
				client := w.observer.client
				reply, err := client.Do(w.ctx, client.B().Arbitrary(renewal...).Build()).AsIntSlice()
				require.NoError(w.t, err)
				return reply
			}
			lease := p.lock("n", mode)
			require.NoError(w.t, lease.Renew(w.ctx))
			require.EqualValues(w.t, 1, again()[1], "the captured command is a renewal that works")
			w.release(lease)

			require.Zero(w.t, again()[1], "a released hold is renewed")
			require.Empty(w.t, w.inspect("n").Holders)
			w.onlyTokensLeft()

			other := q.lock("n", rwlock.Write)
			token := w.inspect("n").Token
			require.Zero(w.t, again()[1])
			s := w.inspect("n")
			require.Len(w.t, s.Holders, 1)
			require.Equal(w.t, other.Owner(), s.Holders[0].Owner)
			require.Equal(w.t, token, s.Token)
			w.release(other)

			w.flushAll()
			require.Zero(w.t, again()[1])
			require.Empty(w.t, w.keys(), "a renewal made keys")
		}
	})
}

// The hold is gone and nobody else has taken the lock: the holder must learn that, and not be let in again.
func TestF06HoldThatIsGoneIsReportedAsLost(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.process()
		lease := p.lock("n", rwlock.Write)
		w.flushAll()
		w.untilOver(lease)
		require.Equal(w.t, rwlock.Taken, w.loss(lease.Err()).Reason)
		require.Empty(w.t, w.keys())
		require.ErrorIs(w.t, lease.Renew(w.ctx), rwlock.ErrLost)
		require.ErrorIs(w.t, lease.Release(w.ctx), rwlock.ErrLost)
		require.Empty(w.t, w.keys())
	})
}

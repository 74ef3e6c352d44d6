package rwlock_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F6: renew only what exists; never create; never touch another's entry.

// A renewal that was sent long ago reaches the server late, over another connection.
func TestF06LateRenewalBringsNothingBack(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, mode := range bothModes {
			p, q := w.Process(), w.Process()
			var mu sync.Mutex
			var renewal []string
			p.Link.OnCommand(func(cmd []string) {
				if testkit.Running(scripts.Renew)(cmd) {
					mu.Lock()
					defer mu.Unlock()
					renewal = slices.Clone(cmd)
				}
			})
			again := func() []int64 {
				mu.Lock()
				defer mu.Unlock()
				client := w.Observer().Client
				reply, err := client.Do(w.Ctx, client.B().Arbitrary(renewal...).Build()).AsIntSlice()
				require.NoError(w, err)
				return reply
			}
			lease := p.Take("n", mode)
			require.NoError(w, lease.Renew(w.Ctx))
			require.EqualValues(w, 1, again()[1], "the captured command is a renewal that works")
			w.Release(lease)

			require.Zero(w, again()[1], "a released hold is renewed")
			require.Empty(w, w.Inspect("n").Holders)
			w.OnlyTokensLeft()

			other := q.Take("n", rwlock.Write)
			token := w.Inspect("n").Token
			require.Zero(w, again()[1])
			s := w.Inspect("n")
			require.Len(w, s.Holders, 1)
			require.Equal(w, other.Owner(), s.Holders[0].Owner)
			require.Equal(w, token, s.Token)
			w.Release(other)

			w.FlushAll()
			require.Zero(w, again()[1])
			require.Empty(w, w.Keys(), "a renewal made keys")
		}
	})
}

// The hold is gone and nobody else has taken the lock: the holder must learn that, and not be let in again.
func TestF06HoldThatIsGoneIsReportedAsLost(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		w.FlushAll()
		w.UntilOver(lease)
		require.Equal(w, rwlock.ReasonGone, w.Loss(lease.Err()).Reason)
		require.Empty(w, w.Keys())
		require.ErrorIs(w, lease.Renew(w.Ctx), rwlock.ErrLost)
		require.ErrorIs(w, lease.Release(w.Ctx), rwlock.ErrLost)
		require.Empty(w, w.Keys())
	})
}

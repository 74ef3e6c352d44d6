package redisguard_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

const migrating = "TRYAGAIN Multiple keys request during rehashing of slot"

// While a slot moves, a Cluster answers that a call is to be sent again: the script has not run.
func TestAMovingSlotIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		g := newGuard(t, mini.Client(t))
		require.NoError(t, g.Claim(t.Context(), write("a", 1), "k")) // loads a script

		mini.Miniredis().SetError(migrating)
		time.AfterFunc(2*time.Second, func() { mini.Miniredis().SetError("") })
		mini.ResetCalls()
		require.NoError(t, g.Claim(t.Context(), write("a", 9), "k"))
		require.Less(t, mini.Calls("EVALSHA"), 15, "the pauses grow")

		ctx, lose := context.WithCancelCause(t.Context())
		mini.Miniredis().SetError(migrating)
		time.AfterFunc(time.Second, func() { lose(&fencing.LostError{Resource: "a", Token: 9, Reason: "expired"}) })
		err := g.Claim(ctx, write("a", 9), "k")
		require.ErrorIs(t, err, fencing.ErrLost)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, migrating)
	})
}

// What a body returns is its caller's, whatever it is: the body may have written before.
func TestTheErrorOfABodyIsNoMovingSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		g := newGuard(t, mini.Client(t))
		script := redisguard.NewScript(`redis.call('INCR', KEYS[1]) return redis.error_reply('TRYAGAIN later')`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorContains(t, second(g.Do(ctx, write("a", 9), script, []string{"k"}, nil)), "later")
		count, err := g.Get(t.Context(), write("a", 9), "k")
		require.NoError(t, err)
		require.Equal(t, "1", count)
	})
}

// The data is still here, and a new register would be where the slot goes.
func TestAccessWhileASlotMoves(t *testing.T) {
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			cluster := testredis.StartCluster(t, binary, 0)
			g, ctx := newGuard(t, clusterClient(t, cluster.Nodes())), t.Context()
			require.NoError(t, g.Set(ctx, write("a", 9), "k", "old", 0))
			slot := cluster.Slot("k")
			from := cluster.Owner(slot)
			move := cluster.BeginMove(slot, cluster.Another(from))
			_, err := from.Command("EXISTS", "k", "fencing:{k}:b")
			require.EqualError(t, err, migrating)

			from.ResetStats()
			done := make(chan error, 1)
			go func() { done <- g.Set(ctx, write("b", 7), "k", "new", 0) }()
			sentAgain := func() bool {
				count := from.Info("errorstats")["errorstat_TRYAGAIN"]
				return len(done) > 0 || count != "" && count != "count=1"
			}
			require.Eventually(t, sentAgain, time.Minute, time.Millisecond)
			move.End()
			require.NoError(t, <-done)
			value, err := g.Get(ctx, write("b", 7), "k")
			require.NoError(t, err)
			require.Equal(t, "new", value)
			require.ErrorIs(t, g.Set(ctx, write("b", 6), "k", "stale", 0), fencing.ErrStale)
		})
	}
}

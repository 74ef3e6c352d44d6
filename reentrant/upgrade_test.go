package reentrant_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// A write inside one's own read turns the hold into a write hold, for the outer section too, with a larger token.
func TestAWriteInsideAReadUpgrades(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		for name, lock := range map[string]bool{"lock": false, "try": true} {
			ctx, owner := owned(t)
			outer := must(t)(p.RLock(ctx, name))
			section, before := outer.Context(ctx), outer.Token()
			nested := must(t)(p.take(section, name, rwlock.Write, lock))
			require.Equal(t, 2, nested.Depth())
			require.Greater(t, nested.Token(), before)
			require.Equal(t, nested.Token(), outer.Token())
			fence, _ := fencing.FromContext(section, name)
			require.Equal(t, fencing.Fence{Resource: name, Token: nested.Token(), Mode: rwlock.Write}, fence)
			holders := p.inspect(t, name).Holders
			require.Len(t, holders, 1)
			require.Equal(t, owner.String(), holders[0].Owner)
			require.Equal(t, 1, holders[0].Count)
			require.NoError(t, nested.Release(ctx))
			require.Equal(t, rwlock.Write, p.inspect(t, name).Mode, "it stays a write hold")
			sent := w.scripts()
			again := must(t)(p.Lock(section, name))
			require.Equal(t, sent, w.scripts(), "no command")
			require.NoError(t, again.Release(ctx))
			require.NoError(t, section.Err())
			require.NoError(t, outer.Release(ctx))
			require.Empty(t, p.inspect(t, name).Holders)
		}
	})
}

// Beside another reader a write inside a read waits, or fails at once where both ask for it.
func TestAnUpgradeOfAnOwnerWaitsForOtherReaders(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		one, _ := owned(t)
		two, _ := owned(t)
		first, second := must(t)(p.RLock(one, "a")), must(t)(p.RLock(two, "a"))
		_, err := p.TryLock(one, "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		upgraded := make(chan error)
		go func() {
			upgraded <- p.Do(one, "a", func(context.Context) error { return nil })
		}()
		p.awaitWaiters(t, "a", 1)
		_, err = p.Lock(two, "a")
		require.ErrorIs(t, err, rwlock.ErrUpgrade)
		require.NoError(t, second.Release(two))
		require.NoError(t, <-upgraded)
		require.NoError(t, first.Lease().Err())
		require.NoError(t, first.Release(one))
		require.Empty(t, p.inspect(t, "a").Holders)
	})
}

// A write inside a read that is at the limit is refused, and the read is as it was.
func TestAnUpgradeThatIsTooDeepIsNotDone(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		p.Locker = reentrant.New(p.remote, reentrant.WithMaxDepth(1))
		for name, try := range map[string]bool{"lock": false, "try": true} {
			ctx, _ := owned(t)
			outer := must(t)(p.RLock(ctx, name))
			token, sent := outer.Token(), w.scripts()
			_, err := p.take(ctx, name, rwlock.Write, try)
			require.ErrorIs(t, err, reentrant.ErrDepth)
			require.Equal(t, sent, w.scripts(), "no command")
			require.Equal(t, token, outer.Token())
			require.Equal(t, rwlock.Read, outer.Lease().Mode())
			require.NoError(t, outer.Release(ctx))
		}
	})
}

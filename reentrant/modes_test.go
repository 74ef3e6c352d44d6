package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

var combinations = []struct {
	outer, nested rwlock.Mode
	want          error
}{
	{rwlock.Write, rwlock.Write, nil},
	{rwlock.Write, rwlock.Read, nil},
	{rwlock.Read, rwlock.Read, nil},
	{rwlock.Read, rwlock.Write, rwlock.ErrUpgrade}, // in another process; see upgrade_test.go
}

// The nested hold of one process in the outer hold of another.
func TestEveryCombinationOfModesAcrossProcesses(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		for _, p := range []*process{first, second} { // each looks at the marker once
			ctx, _ := owned(w)
			hold, err := p.take(ctx, "warm up", rwlock.Write, false)
			require.NoError(w, err)
			require.NoError(w, hold.Release(ctx))
		}
		for _, tt := range combinations {
			for _, try := range []bool{false, true} {
				name := fmt.Sprintf("%s in %s, try %t", tt.nested, tt.outer, try)
				ctx, owner := owned(w)
				outer, err := first.take(ctx, name, tt.outer, try)
				require.NoError(w, err, name)
				there := elsewhere(w, owner)
				sent := scriptsSent(w)

				nested, err := second.take(there, name, tt.nested, try)
				require.ErrorIs(w, err, tt.want, name)
				if tt.want != nil {
					require.ErrorContains(w, err, fmt.Sprintf("%q", name))
					require.Nil(w, nested, name)
					require.Len(w, first.inspect(name).Holders, 1, name)
				} else {
					require.Equal(w, 1, scriptsSent(w)-sent, name)
					require.Equal(w, outer.Token(), nested.Token(), name)
					state := first.inspect(name)
					require.Len(w, state.Holders, 2, name)
					for _, h := range state.Holders {
						require.Equal(w, owner.String(), h.Owner, name)
						require.Equal(w, 2, h.Count, name)
						require.Equal(w, tt.outer, h.Mode, name)
					}
				}
				require.NoError(w, nested.Release(ctx), name)
				require.NoError(w, outer.Lease().Err(), name)
				require.NoError(w, outer.Release(ctx), name)
				require.Empty(w, first.inspect(name).Holders, name)
			}
		}
	})
}

// A hold that has joined another process's read hold stays a reader: an upgrade would wait for that process, which may
// wait for this one.
func TestAReaderThatJoinedIsNotUpgraded(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, owner := owned(w)
		there := elsewhere(w, owner)
		outer := must(w)(first.RLock(ctx, "a"))
		joined := must(w)(second.RLock(there, "a"))
		sent := scriptsSent(w)
		soon, cancel := context.WithTimeout(there, time.Second)
		defer cancel()
		for _, try := range []bool{false, true} {
			_, err := second.take(soon, "a", rwlock.Write, try)
			require.ErrorIs(w, err, rwlock.ErrUpgrade)
			require.ErrorContains(w, err, "by the same owner")
		}
		require.Equal(w, sent, scriptsSent(w), "no command")
		require.NoError(w, joined.Release(there))
		require.NoError(w, outer.Release(ctx))
	})
}

// A write inside one's own read turns the hold into a write hold, for the outer section too, with a larger token.
func TestAWriteInsideAReadUpgrades(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		for name, lock := range map[string]bool{"lock": false, "try": true} {
			ctx, owner := owned(w)
			outer := must(w)(p.RLock(ctx, name))
			section, before := outer.Context(ctx), outer.Token()
			nested := must(w)(p.take(section, name, rwlock.Write, lock))
			require.Equal(w, 2, nested.Depth())
			require.Greater(w, nested.Token(), before)
			require.Equal(w, nested.Token(), outer.Token())
			fence, _ := fencing.FromContext(section, name)
			require.Equal(w, fencing.Fence{Resource: name, Token: nested.Token(), Mode: rwlock.Write}, fence)
			holders := p.inspect(name).Holders
			require.Len(w, holders, 1)
			require.Equal(w, owner.String(), holders[0].Owner)
			require.Equal(w, 1, holders[0].Count)
			require.NoError(w, nested.Release(ctx))
			require.Equal(w, rwlock.Write, p.inspect(name).Mode, "it stays a write hold")
			sent := scriptsSent(w)
			again := must(w)(p.Lock(section, name))
			require.Equal(w, sent, scriptsSent(w), "no command")
			require.NoError(w, again.Release(ctx))
			require.NoError(w, section.Err())
			require.NoError(w, outer.Release(ctx))
			require.Empty(w, p.inspect(name).Holders)
		}
	})
}

// Beside another reader a write inside a read waits, or fails at once where both ask for it.
func TestAnUpgradeOfAnOwnerWaitsForOtherReaders(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		one, _ := owned(w)
		two, _ := owned(w)
		first, second := must(w)(p.RLock(one, "a")), must(w)(p.RLock(two, "a"))
		_, err := p.TryLock(one, "a")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		upgraded := make(chan error)
		go func() {
			upgraded <- p.Do(one, "a", func(context.Context) error { return nil })
		}()
		w.UntilWaiting("a", 1)
		_, err = p.Lock(two, "a")
		require.ErrorIs(w, err, rwlock.ErrUpgrade)
		require.NoError(w, second.Release(two))
		require.NoError(w, <-upgraded)
		require.NoError(w, first.Lease().Err())
		require.NoError(w, first.Release(one))
		require.Empty(w, p.inspect("a").Holders)
	})
}

// A write inside a read that is at the limit is refused, and the read is as it was.
func TestAnUpgradeThatIsTooDeepIsNotDone(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		p.Locker = reentrant.New(p.remote.Locker, reentrant.WithMaxDepth(1))
		for name, try := range map[string]bool{"lock": false, "try": true} {
			ctx, _ := owned(w)
			outer := must(w)(p.RLock(ctx, name))
			token, sent := outer.Token(), scriptsSent(w)
			_, err := p.take(ctx, name, rwlock.Write, try)
			require.ErrorIs(w, err, reentrant.ErrDepth)
			require.Equal(w, sent, scriptsSent(w), "no command")
			require.Equal(w, token, outer.Token())
			require.Equal(w, rwlock.Read, outer.Lease().Mode())
			require.NoError(w, outer.Release(ctx))
		}
	})
}

package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// elsewhere is the context of a process that acts for an owner, whose id came to it as text.
func elsewhere(t *testing.T, owner reentrant.Owner) context.Context {
	t.Helper()
	parsed, err := reentrant.ParseOwner(owner.String())
	require.NoError(t, err)
	return reentrant.AsOwner(t.Context(), parsed)
}

func TestAJoinedHoldKeepsTheLockWhenTheOuterOneIsReleased(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		first, second, third := w.process(), w.process(), w.process()
		ctx, owner := owned(t)
		there := elsewhere(t, owner)
		outer := must(t)(first.Lock(ctx, "a"))
		nested := must(t)(second.Lock(there, "a"))
		require.NoError(t, outer.Release(ctx))

		state := third.inspect(t, "a")
		require.Len(t, state.Holders, 1)
		require.Equal(t, 1, state.Holders[0].Count)
		require.Equal(t, rwlock.Write, state.Mode)
		stranger, _ := owned(t)
		_, err := third.TryLock(stranger, "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)

		again := must(t)(first.Lock(elsewhere(t, owner), "a"))
		require.Equal(t, nested.Token(), again.Token(), "the hold stood all the time")
		require.NoError(t, again.Release(ctx))

		require.NoError(t, nested.Release(there))
		free := must(t)(third.TryLock(stranger, "a"))
		require.Greater(t, free.Token(), nested.Token())
		require.NoError(t, free.Release(stranger))
	})
}

func TestAJoinedHoldKeepsTheLockWhenTheOuterOneExpires(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, mini *testredis.Mini) {
		link := mini.NewLink()
		remote, err := rwlock.New(link.Client(t))
		require.NoError(t, err)
		defer func() { _ = remote.Close() }()
		first, second, third := reentrant.New(remote), w.process(), w.process()
		ctx, owner := owned(t)
		there := elsewhere(t, owner)
		outer := must(t)(first.Lock(ctx, "a"))
		nested := must(t)(second.Lock(there, "a"))

		link.Blackhole(testredis.Both)
		<-outer.Lease().Done()
		require.ErrorIs(t, outer.Lease().Err(), rwlock.ErrLost)
		time.Sleep(time.Second) // the master's own expiry comes a little later
		stranger, _ := owned(t)
		_, err = third.TryLock(stranger, "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		state := third.inspect(t, "a")
		require.Len(t, state.Holders, 1)
		require.Equal(t, 1, state.Holders[0].Count)
		require.Equal(t, nested.Token(), state.Token)

		_, err = first.Lock(ctx, "a")
		require.ErrorIs(t, err, rwlock.ErrLost, "the first process has lost its own hold")
		require.Equal(t, 2, must(t)(second.Lock(there, "a")).Depth(), "the second has not")
	})
}

func TestNestingInAJoinedHoldIsLocal(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		first, second := w.process(), w.process()
		ctx, owner := owned(t)
		there := elsewhere(t, owner)
		outer := must(t)(first.Lock(ctx, "a"))
		joined := must(t)(second.Lock(there, "a"))
		require.Equal(t, 1, joined.Depth(), "of this process")

		sent := w.scripts()
		nested := must(t)(second.RLock(there, "a"))
		require.Equal(t, 2, nested.Depth())
		require.NoError(t, nested.Release(there))
		require.Equal(t, sent, w.scripts())

		// The call comes back into the first process, whose own hold is the innermost there is.
		back := must(t)(first.Lock(elsewhere(t, owner), "a"))
		require.Equal(t, 2, back.Depth())
		require.Same(t, outer.Lease(), back.Lease())
		require.Equal(t, sent, w.scripts())
		require.NoError(t, back.Release(ctx))
		require.NoError(t, joined.Release(there))
		require.NoError(t, outer.Release(ctx))
	})
}

// What the context claims decides between a loss and an ordinary acquisition.
func TestAsOwnerWhereTheOwnerHoldsNothing(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p, others := w.process(), w.process()
		stranger, _ := owned(t)
		_, owner := owned(t)
		plain := elsewhere(t, owner)
		claiming := fencing.NewContext(plain, fencing.Fence{Resource: "a", Token: 17, Mode: fencing.Write})
		claimingOther := fencing.NewContext(plain, fencing.Fence{Resource: "b", Token: 17, Mode: fencing.Write})

		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			for _, try := range []bool{false, true} {
				for _, ctx := range []context.Context{plain, claimingOther} {
					hold := must(t)(p.take(ctx, "a", mode, try))
					require.Equal(t, owner.String(), hold.Lease().Owner())
					require.Equal(t, mode, hold.Lease().Mode())
					require.NoError(t, hold.Release(ctx))
				}
				_, err := p.take(claiming, "a", mode, try)
				requireLost(t, err, "a", 17, rwlock.Taken)
				require.Empty(t, p.inspect(t, "a").Holders)
			}
		}

		held := must(t)(others.Lock(stranger, "a"))
		_, err := p.TryLock(plain, "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		_, err = p.Lock(claiming, "a")
		requireLost(t, err, "a", 17, rwlock.Taken)
		require.NoError(t, held.Release(stranger))
	})
}

// The owner holds the lock, but not since the section that the context comes from: it was lost and taken anew.
func TestAsOwnerWithAnOldFence(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		first, second := w.process(), w.process()
		ctx, owner := owned(t)
		old := must(t)(first.Lock(ctx, "a"))
		stale := fencing.NewContext(elsewhere(t, owner), old.Lease().Fence())
		require.NoError(t, old.Release(ctx))
		renewed := must(t)(first.Lock(ctx, "a"))

		_, err := second.Lock(stale, "a")
		requireLost(t, err, "a", old.Token(), rwlock.Taken)
		require.Len(t, first.inspect(t, "a").Holders, 1, "what was joined is given back")
		_, err = first.Lock(stale, "a")
		requireLost(t, err, "a", old.Token(), rwlock.Taken)

		valid := fencing.NewContext(stale, renewed.Lease().Fence())
		nested := must(t)(second.Lock(valid, "a"))
		require.Equal(t, renewed.Token(), nested.Token())
		require.NoError(t, nested.Release(valid))
		require.NoError(t, renewed.Release(ctx))
	})
}

func TestAJoinThatIsNotAnsweredIsNoLoss(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, mini *testredis.Mini) {
		link := mini.NewLink()
		remote, err := rwlock.New(link.Client(t))
		require.NoError(t, err)
		defer func() { _ = remote.Close() }()
		first, second := w.process(), reentrant.New(remote)
		ctx, owner := owned(t)
		outer := must(t)(first.Lock(ctx, "a"))
		synctest.Wait()

		link.MuteNextReply(testredis.Named("EVALSHA"))
		there, cancel := context.WithTimeout(elsewhere(t, owner), 2*time.Second)
		defer cancel()
		begun := time.Now()
		_, err = second.Lock(there, "a")
		require.Equal(t, 2*time.Second, time.Since(begun))
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.NotErrorIs(t, err, rwlock.ErrLost)
		require.True(t, rwlock.Indeterminate(err))

		link.Cut()
		time.Sleep(time.Second)
		require.Len(t, first.inspect(t, "a").Holders, 1, "what may have been joined is given back")
		require.NoError(t, outer.Lease().Err())
		require.NoError(t, outer.Release(ctx))
	})
}

// The context of who joins may end with the loss of another lock. That says nothing of the one that is joined.
func TestAJoinUnderALossOfAnotherLockIsNoLoss(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		first, second := w.process(), w.process()
		ctx, owner := owned(t)
		outer := must(t)(first.Lock(ctx, "a"))
		claiming := fencing.NewContext(elsewhere(t, owner), outer.Lease().Fence())
		there, lose := context.WithCancelCause(claiming)
		lose(&rwlock.LostError{Name: "b", Token: 17, Reason: rwlock.Expired})
		_, err := second.Lock(there, "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, rwlock.ErrLost, "the cause is told")
		require.NoError(t, outer.Lease().Err())
		require.NoError(t, outer.Release(ctx))
	})
}

// An owner that reads in two processes has two holds, each with a token of its own. Who nests by the fence of one of
// them joins that one, in a third process and in the process of the other.
func TestEachReadHoldOfAnOwnerIsJoinedByItsToken(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		origin, service, third := w.process(), w.process(), w.process()
		ctx, owner := owned(t)
		there := elsewhere(t, owner)
		first := must(t)(service.RLock(there, "a"))
		second := must(t)(origin.RLock(ctx, "a"))
		require.NotEqual(t, first.Token(), second.Token())

		claiming := func(outer *reentrant.Hold) context.Context {
			return fencing.NewContext(elsewhere(t, owner), outer.Lease().Fence())
		}
		nests := func(p *process, outer *reentrant.Hold) {
			t.Helper()
			by := claiming(outer)
			nested := must(t)(p.RLock(by, "a"))
			require.Equal(t, outer.Token(), nested.Token())
			again := must(t)(p.RLock(by, "a"))
			require.Same(t, nested.Lease(), again.Lease())
			require.NoError(t, again.Release(by))
			require.NoError(t, nested.Release(by))
		}
		for _, p := range []*process{origin, service, third} {
			nests(p, first)
			nests(p, second)
		}
		require.NoError(t, second.Release(ctx))
		for _, p := range []*process{origin, service, third} {
			nests(p, first)
		}
		gone := claiming(first)
		require.NoError(t, first.Release(there))
		_, err := third.RLock(gone, "a")
		requireLost(t, err, "a", first.Token(), rwlock.Taken)
		require.Empty(t, third.inspect(t, "a").Holders)
	})
}

package reentrant_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// elsewhere is the context of a process that acts for an owner, whose id came to it as text.
func elsewhere(w *world, owner reentrant.Owner) context.Context {
	w.Helper()
	parsed := expect.NoError(reentrant.ParseOwner(owner.String())).In(w)
	return reentrant.AsOwner(w.Ctx, parsed)
}

func TestAJoinedHoldKeepsTheLockWhenTheOuterOneExpires(t *testing.T) {
	inFakeTime(t, func(w *world) {
		first, second, third := start(w), start(w), start(w)
		ctx, there := ownedTwice(w)
		outer := must(w)(first.Lock(ctx, "a"))
		nested := must(w)(second.Lock(there, "a"))

		first.remote.Link.Blackhole(testredis.Both)
		<-outer.Lease().Done()
		require.ErrorIs(w, outer.Lease().Err(), rwlock.ErrLost)
		time.Sleep(time.Second) // the master's own expiry comes a little later
		stranger, _ := owned(w)
		require.ErrorIs(w, expect.ErrorOf(third.TryLock(stranger, "a")), rwlock.ErrNotAcquired)
		state := third.inspect("a")
		require.Len(w, state.Holders, 1)
		require.Equal(w, 1, state.Holders[0].Count)
		require.Equal(w, nested.Token(), state.Token)

		require.ErrorIs(w, expect.ErrorOf(first.Lock(ctx, "a")), rwlock.ErrLost, "the first process has lost its own hold")
		require.Equal(w, 2, must(w)(second.Lock(there, "a")).Depth(), "the second has not")
	})
}

// What the context claims decides between a loss and an ordinary acquisition.
func TestAsOwnerWhereTheOwnerHoldsNothing(t *testing.T) {
	everywhere(t, func(w *world) {
		p, others := start(w), start(w)
		stranger, _ := owned(w)
		_, owner := owned(w)
		plain := elsewhere(w, owner)
		claiming := fencing.NewContext(plain, fencing.Fence{Resource: "a", Token: 17, Mode: fencing.Write})
		claimingOther := fencing.NewContext(plain, fencing.Fence{Resource: "b", Token: 17, Mode: fencing.Write})

		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			for _, try := range []bool{false, true} {
				for _, ctx := range []context.Context{plain, claimingOther} {
					hold := must(w)(p.take(ctx, "a", mode, try))
					require.Equal(w, owner.String(), hold.Lease().Owner())
					require.Equal(w, mode, hold.Lease().Mode())
					require.NoError(w, hold.Release(ctx))
				}
				_, err := p.take(claiming, "a", mode, try)
				requireLost(w, err, "a", 17, rwlock.ReasonGone)
				require.Empty(w, p.inspect("a").Holders)
			}
		}

		held := must(w)(others.Lock(stranger, "a"))
		require.ErrorIs(w, expect.ErrorOf(p.TryLock(plain, "a")), rwlock.ErrNotAcquired)
		_, err := p.Lock(claiming, "a")
		requireLost(w, err, "a", 17, rwlock.ReasonGone)
		require.NoError(w, held.Release(stranger))
	})
}

// The owner holds the lock, but not since the section that the context comes from: it was lost and taken anew.
func TestAsOwnerWithAnOldFence(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, owner := owned(w)
		old := must(w)(first.Lock(ctx, "a"))
		stale := fencing.NewContext(elsewhere(w, owner), old.Lease().Fence())
		require.NoError(w, old.Release(ctx))
		renewed := must(w)(first.Lock(ctx, "a"))

		_, err := second.Lock(stale, "a")
		requireLost(w, err, "a", old.Token(), rwlock.ReasonGone)
		require.Len(w, first.inspect("a").Holders, 1, "what was joined is given back")
		_, err = first.Lock(stale, "a")
		requireLost(w, err, "a", old.Token(), rwlock.ReasonGone)

		valid := fencing.NewContext(stale, renewed.Lease().Fence())
		nested := must(w)(second.Lock(valid, "a"))
		require.Equal(w, renewed.Token(), nested.Token())
		require.NoError(w, nested.Release(valid))
		require.NoError(w, renewed.Release(ctx))
	})
}

func TestAJoinThatIsNotAnsweredIsNoLoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, owner := owned(w)
		outer := must(w)(first.Lock(ctx, "a"))
		synctest.Wait()

		second.remote.Link.MuteNextReply(testredis.Named("EVALSHA"))
		there, cancel := context.WithTimeout(elsewhere(w, owner), 2*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := second.Lock(there, "a")
		require.Equal(w, 2*time.Second, time.Since(begun))
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.NotErrorIs(w, err, rwlock.ErrLost)
		require.True(w, rwlock.Indeterminate(err))

		second.remote.Link.Cut()
		time.Sleep(time.Second)
		require.Len(w, first.inspect("a").Holders, 1, "what may have been joined is given back")
		require.NoError(w, outer.Lease().Err())
		require.NoError(w, outer.Release(ctx))
	})
}

// An owner that reads in two processes has two holds. Who nests by the fence of one of them joins that one.
func TestEachReadHoldOfAnOwnerIsJoinedByItsToken(t *testing.T) {
	everywhere(t, func(w *world) {
		origin, service, third := start(w), start(w), start(w)
		ctx, owner := owned(w)
		there := elsewhere(w, owner)
		first := must(w)(service.RLock(there, "a"))
		second := must(w)(origin.RLock(ctx, "a"))
		require.NotEqual(w, first.Token(), second.Token())

		claiming := func(outer *reentrant.Hold) context.Context {
			return fencing.NewContext(elsewhere(w, owner), outer.Lease().Fence())
		}
		nests := func(p *process, outer *reentrant.Hold) {
			w.Helper()
			by := claiming(outer)
			nested := must(w)(p.RLock(by, "a"))
			require.Equal(w, outer.Token(), nested.Token())
			again := must(w)(p.RLock(by, "a"))
			require.Same(w, nested.Lease(), again.Lease())
			require.NoError(w, again.Release(by))
			require.NoError(w, nested.Release(by))
		}
		for _, p := range []*process{origin, service, third} {
			nests(p, first)
			nests(p, second)
		}
		require.NoError(w, second.Release(ctx))
		for _, p := range []*process{origin, service, third} {
			nests(p, first)
		}
		gone := claiming(first)
		require.NoError(w, first.Release(there))
		_, err := third.RLock(gone, "a")
		requireLost(w, err, "a", first.Token(), rwlock.ReasonGone)
		require.Empty(w, third.inspect("a").Holders)
	})
}

// A read that joins a write counts on the write hold: its fence is a writer's, and what nests in it may write.
func TestAReadThatJoinsAWriteIsAWrite(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, owner := owned(w)
		there := elsewhere(w, owner)
		outer := must(w)(first.Lock(ctx, "a"))
		joined := must(w)(second.RLock(there, "a"))
		require.Equal(w, rwlock.Write, joined.Lease().Mode())
		fence, _ := fencing.FromContext(joined.Context(there), "a")
		require.Equal(w, outer.Lease().Fence(), fence)
		sent := scriptsSent(w)
		nested := must(w)(second.Lock(there, "a"))
		require.Equal(w, 2, nested.Depth())
		require.NoError(w, nested.Release(there))
		back := must(w)(first.Lock(elsewhere(w, owner), "a"))
		require.Same(w, outer.Lease(), back.Lease(), "the innermost hold of a process is its own")
		require.NoError(w, back.Release(ctx))
		require.Equal(w, sent, scriptsSent(w), "no command")
		require.NoError(w, joined.Release(there))
		require.NoError(w, outer.Release(ctx))
	})
}

// Over a quorum a nested acquisition counts and joins as on one master.
func TestNestingOverAQuorum(t *testing.T) {
	testkit.InFakeTime(t, 3, func(w *world) {
		first, second := start(w), start(w)
		for _, tt := range combinations {
			ctx, owner := owned(w)
			outer := must(w)(first.take(ctx, "a", tt.outer, false))
			for _, process := range []*process{first, second} {
				there := elsewhere(w, owner)
				nested, err := process.take(there, "a", tt.nested, false)
				require.ErrorIs(w, err, tt.want)
				if tt.want == nil {
					require.Equal(w, outer.Token(), nested.Token())
				}
				require.NoError(w, nested.Release(there))
			}
			require.NoError(w, outer.Release(ctx))
		}

		_, there := ownedTwice(w)
		claiming := fencing.NewContext(there, fencing.Fence{Resource: "b", Token: 17, Mode: fencing.Write})
		_, err := second.Lock(claiming, "b")
		requireLost(w, err, "b", 17, rwlock.ReasonGone)
		hold := must(w)(second.Lock(there, "b"))
		require.NoError(w, hold.Release(there))
	})
}

// uneven are the ways of messages that reach the masters in different orders.
func uneven() func() time.Duration {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(500+rng.IntN(1000)) * time.Microsecond
	}
}

// Processes of one owner take a lock in turns. While one releases its hold and the next one gets its own, the masters
// know different holds of the owner for a moment: a call that asks then takes the lock like any other.
func TestProcessesOfAnOwnerInTurns(t *testing.T) {
	for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
		testkit.InFakeTime(t, 3, func(w *world) {
			w.Net.Ways = uneven()
			ctx := reentrant.AsOwner(w.Ctx, reentrant.NewOwner())
			var all sync.WaitGroup
			for range 3 {
				p := start(w)
				all.Go(func() {
					for range 30 {
						h, err := p.take(ctx, "a", mode, false)
						if !assert.NoError(w, err) {
							return
						}
						assert.NoError(w, h.Release(ctx))
					}
				})
			}
			all.Wait()
		})
	}
}

// Several processes of one owner read at once. The masters have got their holds in different orders, and know the same
// ones: a further read joins, and does not wait behind a writer that waits for them.
func TestReadsOfAnOwnerAtOnce(t *testing.T) {
	testkit.InFakeTime(t, 3, func(w *world) {
		w.Net.Ways = uneven()
		readers, writer, another := []*process{start(w), start(w), start(w)}, start(w), start(w)
		for range 60 {
			ctx := reentrant.AsOwner(w.Ctx, reentrant.NewOwner())
			holds := make([]*reentrant.Hold, len(readers))
			var all sync.WaitGroup
			for i, p := range readers {
				all.Go(func() {
					var err error
					holds[i], err = p.RLock(ctx, "a")
					assert.NoError(w, err)
				})
			}
			all.Wait()
			all.Go(func() {
				h, err := writer.Lock(reentrant.AsOwner(w.Ctx, reentrant.NewOwner()), "a")
				if assert.NoError(w, err) {
					assert.NoError(w, h.Release(w.Ctx))
				}
			})
			w.Pass(100 * time.Millisecond)
			within, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			h, err := another.RLock(within, "a")
			if assert.NoError(w, err) {
				assert.NoError(w, h.Release(ctx))
			}
			cancel()
			for _, h := range holds {
				assert.NoError(w, h.Release(ctx))
			}
			all.Wait()
		}
	})
}

package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Whoever lost the lock stands in it until it unlocks: it keeps its own token, and nobody else of the process is let
// in.
func TestRWMutexStaysWithWhoeverLostIt(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		limit := rwlock.WithMaxHold(300 * time.Millisecond)
		mu := p.RWMutex("cfg", limit)
		require.NoError(w, mu.Lock(w.Ctx))
		lost, ctx := mu.Token(), mu.Context(w.Ctx)
		next := w.Call(w.Ctx, p.RWMutex("cfg", limit).Lock)
		reader := w.Call(w.Ctx, mu.RLock)
		w.Pass(w.TTL)

		require.Equal(w, rwlock.MaxHold, w.Loss(context.Cause(ctx)).Reason)
		require.True(w, next.IsWaiting())
		require.True(w, reader.IsWaiting())
		require.Equal(w, lost, mu.Token())
		require.ErrorIs(w, mu.Context(w.Ctx).Err(), context.Canceled, "the context of a lock that was lost has ended")
		require.ErrorIs(w, mu.TryLock(w.Ctx), rwlock.ErrNotAcquired)
		refused := mu.TryRLock(w.Ctx)
		require.ErrorIs(w, refused, rwlock.ErrNotAcquired)
		require.ErrorContains(w, refused, "has not unlocked it")

		loss := w.Loss(mu.Unlock(w.Ctx))
		require.Equal(w, rwlock.MaxHold, loss.Reason)
		require.Equal(w, lost, loss.Token)
		require.NoError(w, next.Result())
		require.Greater(w, mu.Token(), lost)
		require.NoError(w, mu.Context(w.Ctx).Err())
		require.NoError(w, mu.Unlock(w.Ctx))
		require.NoError(w, reader.Result())
		require.NoError(w, mu.RUnlock(w.Ctx))
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
		require.Zero(w, mu.Token())
		w.OnlyTokensLeft()
	})
}

// The late write of one that lost the lock carries its own token, and the guard refuses it.
func TestALateWriteUnderALostRWMutexIsStale(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		mu, other := p.RWMutex("cfg"), q.RWMutex("cfg")
		var store fencing.Watermark
		write := func(m *rwlock.RWMutex) error {
			f := fencing.Fence{Resource: "cfg", Token: m.Token(), Mode: fencing.Write}
			return store.Do(w.Ctx, f, func(context.Context) error { return nil })
		}
		require.NoError(w, mu.Lock(w.Ctx))
		p.Link.Blackhole(testredis.Both)
		next := w.Call(w.Ctx, mu.Lock)
		w.Pass(2 * w.TTL)
		require.NoError(w, other.Lock(w.Ctx))
		require.NoError(w, write(other))
		require.NoError(w, other.Unlock(w.Ctx))
		p.Link.Restore()
		w.Pass(w.TTL)

		require.True(w, next.IsWaiting())
		require.ErrorIs(w, write(mu), fencing.ErrStale)
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
		require.NoError(w, next.Result())
		require.NoError(w, write(mu))
		require.NoError(w, mu.Unlock(w.Ctx))
	})
}

// A missing Unlock keeps the process out, which its waiters are told, and nobody else: no lease is renewed for ever.
func TestAMissingUnlockAfterALossConcernsItsProcessOnly(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		mu := p.RWMutex("s")
		require.NoError(w, mu.Lock(w.Ctx))
		w.FlushAll()
		w.UntilClosed(mu.Context(w.Ctx).Done())

		ctx, cancel := context.WithTimeout(w.Ctx, w.TTL)
		defer cancel()
		err := w.Call(ctx, mu.Lock).Result()
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NotErrorIs(w, err, rwlock.ErrLost, "it was another goroutine that lost it")
		require.ErrorContains(w, err, "has not unlocked it")

		w.Release(q.Take("s", rwlock.Write))
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
		require.NoError(w, mu.Lock(w.Ctx))
		require.NoError(w, mu.Unlock(w.Ctx))
		w.Release(q.Take("s", rwlock.Write))
		w.OnlyTokensLeft()
	})
}

// Each of the readers that shared a lease is told of its loss, and none joins it any more.
func TestALossEndsEveryReaderOfTheLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		mu := p.RWMutex("n")
		for range 3 {
			require.NoError(w, mu.RLock(w.Ctx))
		}
		lost := mu.Token()
		w.FlushAll()
		w.UntilClosed(mu.Context(w.Ctx).Done())
		late := []*testkit.Call{w.Call(w.Ctx, mu.RLock), w.Call(w.Ctx, mu.RLock)}
		require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired)
		for range 3 {
			require.True(w, late[0].IsWaiting())
			require.Equal(w, lost, w.Loss(mu.RUnlock(w.Ctx)).Token)
		}
		for _, l := range late {
			require.NoError(w, l.Result())
			require.Greater(w, mu.Token(), lost)
		}
		require.Len(w, w.Inspect("n").Holders, 1)
		require.NoError(w, mu.RUnlock(w.Ctx))
		require.NoError(w, mu.RUnlock(w.Ctx))
		w.OnlyTokensLeft()
	})
}

// Two readers that overlap all the time, each for far less than the limit, never end each other; a reader that stays
// for longer than the limit is ended.
func TestOverlappingReadersDoNotEndEachOther(t *testing.T) {
	for name, opt := range map[string]rwlock.LockOption{
		"WithMaxHold": rwlock.WithMaxHold(time.Second), "WithoutRenewal": rwlock.WithoutRenewal(),
		"by default": rwlock.WithTTL(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				mu := w.Process(rwlock.WithTTL(time.Second)).RWMutex("cfg", opt)
				const rounds, hold = 25, 100 * time.Millisecond
				require.NoError(w, mu.RLock(w.Ctx))
				first := mu.Token()
				for range rounds {
					time.Sleep(hold / 2)
					require.NoError(w, mu.RLock(w.Ctx))
					require.Equal(w, first, mu.Token(), "one remote hold")
					ctx := mu.Context(w.Ctx)
					time.Sleep(hold / 2)
					require.NoError(w, mu.RUnlock(w.Ctx)) // of the one that came before
					require.NoError(w, ctx.Err())
					require.Len(w, w.Inspect("cfg").Holders, 1)
				}
				ctx := mu.Context(w.Ctx)
				w.Pass(2 * time.Second)
				if name == "by default" {
					require.NoError(w, ctx.Err())
					require.NoError(w, mu.RUnlock(w.Ctx))
					w.OnlyTokensLeft()
					return
				}
				reason := map[string]rwlock.Reason{"WithMaxHold": rwlock.MaxHold, "WithoutRenewal": rwlock.Expired}[name]
				require.Equal(w, reason, w.Loss(context.Cause(ctx)).Reason)
				require.Empty(w, w.Inspect("cfg").Holders, "it does not block others")
				require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired)
				require.Equal(w, reason, w.Loss(mu.RUnlock(w.Ctx)).Reason)
				require.NoError(w, mu.RLock(w.Ctx))
				require.NoError(w, mu.RUnlock(w.Ctx))
				w.OnlyTokensLeft()
			})
		})
	}
}

// At WithMaxHold the contexts of the readers end before anybody else is let in.
func TestReadersEndBeforeAnotherIsLetInAtTheirLimit(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		mu := p.RWMutex("n", rwlock.WithMaxHold(time.Second))
		require.NoError(w, mu.RLock(w.Ctx))
		ctx := mu.Context(w.Ctx)
		began := time.Now()
		writer := q.Queue("n", rwlock.Write)
		lease := writer.Granted()
		require.ErrorIs(w, context.Cause(ctx), rwlock.ErrLost)
		require.Less(w, writer.At.Sub(began), 2*time.Second, "given back at the limit")
		w.Release(lease)
		require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrLost)
	})
}

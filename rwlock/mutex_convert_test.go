package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// An RWMutex goes from reading to writing and back with a larger token each time, and its contexts go with it.
func TestAnRWMutexIsUpgradedAndDowngraded(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		mu, elsewhere := p.RWMutex("n"), q.RWMutex("n")
		require.NoError(w.t, mu.RLock(w.ctx))
		ctx, last := mu.Context(w.ctx), mu.Token()
		for range 3 {
			for _, step := range []struct {
				convert func(context.Context) error
				mode    rwlock.Mode
				let     error // what another process's reader is told
			}{{mu.Upgrade, rwlock.Write, rwlock.ErrNotAcquired}, {mu.Downgrade, rwlock.Read, nil}} {
				require.NoError(w.t, step.convert(w.ctx))
				require.Greater(w.t, mu.Token(), last)
				last = mu.Token()
				fence, ok := fencing.FromContext(ctx, "n")
				require.True(w.t, ok)
				require.Equal(w.t, fencing.Fence{Resource: "n", Token: last, Mode: step.mode}, fence)
				require.NoError(w.t, ctx.Err())
				w.eventually("one hold is left", func() bool { return len(w.inspect("n").Holders) == 1 })
				require.Equal(w.t, step.mode, w.inspect("n").Mode)
				require.ErrorIs(w.t, elsewhere.TryLock(w.ctx), rwlock.ErrNotAcquired)
				err := elsewhere.TryRLock(w.ctx)
				require.ErrorIs(w.t, err, step.let)
				if err == nil {
					require.NoError(w.t, elsewhere.RUnlock(w.ctx))
				}
			}
		}
		require.NoError(w.t, mu.TryUpgrade(w.ctx))
		require.NoError(w.t, mu.Unlock(w.ctx))
		w.untilClosed(ctx.Done())
		require.ErrorIs(w.t, context.Cause(ctx), rwlock.ErrReleased)
		require.Zero(w.t, p.Stats().Held)
		w.eventually("only tokens are left", w.hasOnlyTokens)
	})
}

// Who converts what is not there is told so, and what is there stays as it is.
func TestConversionsOfWhatIsNotHeld(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.process()
		p.hasWaited()
		mu := p.RWMutex("n")
		over, cancel := context.WithCancel(w.ctx)
		cancel()
		for _, c := range []struct {
			name         string
			lock, unlock func(context.Context) error
			convert      func(context.Context) error
			ctx          context.Context
			want         error
		}{
			{"upgrade of nothing", nil, nil, mu.Upgrade, w.ctx, rwlock.ErrNotHeld},
			{"single upgrade of nothing", nil, nil, mu.TryUpgrade, w.ctx, rwlock.ErrNotHeld},
			{"downgrade of nothing", nil, nil, mu.Downgrade, w.ctx, rwlock.ErrNotHeld},
			{"upgrade of a write lock", mu.Lock, mu.Unlock, mu.Upgrade, w.ctx, rwlock.ErrNotHeld},
			{"single upgrade of a write lock", mu.Lock, mu.Unlock, mu.TryUpgrade, w.ctx, rwlock.ErrNotHeld},
			{"downgrade of a read lock", mu.RLock, mu.RUnlock, mu.Downgrade, w.ctx, rwlock.ErrNotHeld},
			{"upgrade after the end of ctx", mu.RLock, mu.RUnlock, mu.Upgrade, over, context.Canceled},
			{"downgrade after the end of ctx", mu.Lock, mu.Unlock, mu.Downgrade, over, context.Canceled},
			{"refused name", nil, nil, p.RWMutex("").Upgrade, w.ctx, rwlock.ErrOption},
		} {
			if c.lock != nil {
				require.NoError(w.t, c.lock(w.ctx), c.name)
			}
			token := mu.Token()
			p.link.ResetCalls()
			require.ErrorIs(w.t, c.convert(c.ctx), c.want, c.name)
			require.Empty(w.t, sent(p.link), c.name)
			require.Equal(w.t, token, mu.Token(), c.name)
			if c.unlock != nil {
				require.NoError(w.t, c.unlock(w.ctx), c.name)
			}
		}
		w.eventually("only tokens are left", w.hasOnlyTokens)
	})
}

// A reader that upgrades waits for the other readers of the process and of others. From the beginning nobody gets in,
// and whoever else wants to upgrade is told at once, here and elsewhere.
func TestAnUpgradeWaitsForReadersHereAndElsewhere(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		mu, elsewhere := p.RWMutex("n"), q.RWMutex("n")
		for _, one := range []*rwlock.RWMutex{mu, mu, elsewhere} {
			require.NoError(w.t, one.RLock(w.ctx))
		}
		token := mu.Token()
		require.ErrorIs(w.t, mu.TryUpgrade(w.ctx), rwlock.ErrNotAcquired)
		upgrade := w.locking(w.ctx, mu.Upgrade)
		w.untilWaiting("n", 1)
		require.ErrorIs(w.t, mu.Upgrade(w.ctx), rwlock.ErrUpgrade)
		require.ErrorIs(w.t, mu.TryUpgrade(w.ctx), rwlock.ErrUpgrade)
		require.ErrorIs(w.t, elsewhere.Upgrade(w.ctx), rwlock.ErrUpgrade)
		require.ErrorIs(w.t, mu.TryRLock(w.ctx), rwlock.ErrNotAcquired)
		require.ErrorIs(w.t, w.process().RWMutex("n").TryRLock(w.ctx), rwlock.ErrNotAcquired)
		require.Equal(w.t, token, mu.Token())

		require.NoError(w.t, elsewhere.RUnlock(w.ctx))
		w.eventually("it is granted there", func() bool { return len(w.inspect("n").Waiters) == 0 })
		require.True(w.t, upgrade.isWaiting(), "for the one beside it")
		require.Equal(w.t, token, mu.Token())
		require.NoError(w.t, mu.RUnlock(w.ctx))
		require.NoError(w.t, upgrade.result())
		require.Greater(w.t, mu.Token(), token)
		require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrNotHeld)
		require.NoError(w.t, mu.Unlock(w.ctx))
		w.eventually("only tokens are left", w.hasOnlyTokens)
	})
}

// A downgrade lets in who waits to read, of the process without a command, and of others; not past a writer.
func TestADowngradeOfAnRWMutexLetsReadersIn(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		p.hasWaited()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		readers := []*locking{w.locking(w.ctx, mu.RLock), w.locking(w.ctx, mu.RLock)}
		writer := w.locking(w.ctx, mu.Lock)
		elsewhere := q.queue("n", rwlock.Read)
		p.link.ResetCalls()
		require.NoError(w.t, mu.Downgrade(w.ctx))
		for _, r := range readers {
			require.NoError(w.t, r.result())
		}
		w.release(elsewhere.granted())
		calls := sent(p.link)
		require.Equal(w.t, 2, calls["EVAL"]+calls["EVALSHA"], "for the conversion")
		require.True(w.t, writer.isWaiting())
		require.ErrorIs(w.t, mu.TryRLock(w.ctx), rwlock.ErrNotAcquired, "behind the writer")
		for range 3 {
			require.True(w.t, writer.isWaiting())
			require.NoError(w.t, mu.RUnlock(w.ctx))
		}
		require.NoError(w.t, writer.result())
		require.NoError(w.t, mu.Unlock(w.ctx))
		w.eventually("only tokens are left", w.hasOnlyTokens)
	})
}

// Readers elsewhere who waited for a downgrade are in beside it, and nobody waits: readers of the process go on
// joining. As soon as a writer waits elsewhere they do not, also where that one came before.
func TestReadersJoinAfterADowngradeUntilAWriterWaits(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, before := range []bool{false, true} {
			p, q := w.process(), w.process()
			p.hasWaited()
			mu := p.RWMutex("n")
			require.NoError(w.t, mu.Lock(w.ctx))
			elsewhere := q.queue("n", rwlock.Read)
			var writer *pending
			if before {
				writer = q.queue("n", rwlock.Write)
			}
			require.NoError(w.t, mu.Downgrade(w.ctx))
			lease := elsewhere.granted()
			if !before {
				require.NoError(w.t, mu.TryRLock(w.ctx))
				require.NoError(w.t, mu.RUnlock(w.ctx))
				writer = q.queue("n", rwlock.Write)
			}
			hears(w, mu)
			w.release(lease)
			require.NoError(w.t, mu.RUnlock(w.ctx))
			w.release(writer.granted())
			w.eventually("only tokens are left", w.hasOnlyTokens)
		}
	})
}

// hears returns when the readers of a process have heard that a writer waits elsewhere: by a message, before a renewal.
func hears(w *world, mu *rwlock.RWMutex) {
	w.t.Helper()
	began := time.Now()
	w.eventually("it is heard", func() bool {
		if mu.TryRLock(w.ctx) != nil {
			return true
		}
		require.NoError(w.t, mu.RUnlock(w.ctx))
		return false
	})
	w.requireLess(time.Since(began), time.Second, "by a message")
}

// Readers who follow a writer of the process under its lease upgrade without a command, with a token of the block. The
// last of the block is not for readers, who would have none to upgrade with.
func TestAnUpgradeUnderAWriteLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process(rwlock.WithLinger(time.Minute))
		p.hasWaited()
		mu := p.RWMutex("n")
		for left, commands := range map[fencing.Token]bool{2: false, 1: true} {
			require.NoError(w.t, mu.Lock(w.ctx))
			last := w.inspect("n").Token
			for mu.Token()+left < last {
				require.NoError(w.t, mu.Unlock(w.ctx))
				require.NoError(w.t, mu.Lock(w.ctx))
			}
			require.NoError(w.t, mu.Unlock(w.ctx))
			p.link.ResetCalls()
			require.NoError(w.t, mu.RLock(w.ctx))
			require.NoError(w.t, mu.RLock(w.ctx))
			token, upgrade := mu.Token(), w.locking(w.ctx, mu.Upgrade)
			require.True(w.t, upgrade.isWaiting())
			require.ErrorIs(w.t, mu.Upgrade(w.ctx), rwlock.ErrUpgrade)
			require.NoError(w.t, mu.RUnlock(w.ctx))
			require.NoError(w.t, upgrade.result())
			require.Equal(w.t, commands, len(sent(p.link)) > 0)
			require.Greater(w.t, mu.Token(), token)
			require.LessOrEqual(w.t, mu.Token(), w.inspect("n").Token)
			token = mu.Token()
			require.NoError(w.t, mu.Downgrade(w.ctx))
			require.Greater(w.t, mu.Token(), token)
			require.NoError(w.t, mu.RUnlock(w.ctx))
		}
	})
}

package reentrant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestSeveralLocksNest(t *testing.T) {
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		b := must(w)(p.Lock(ctx, "b"))
		sent := scriptsSent(w)
		m := expect.NoError(p.LockAll(ctx, rwlock.Writes("c", "b", "a"))).In(w)
		require.Equal(w, 2, scriptsSent(w)-sent, "of a and c")
		for i, depth := range []int{1, 2, 1} {
			require.Equal(w, depth, m.Holds()[i].Depth())
		}
		require.Equal(w, b.Lease(), m.Holds()[1].Lease())
		under := m.Context(ctx)
		for _, h := range m.Holds() {
			fence, ok := fencing.FromContext(under, h.Lease().Name())
			require.True(w, ok)
			require.Equal(w, h.Token(), fence.Token)
		}
		sent = scriptsSent(w)
		inner := expect.NoError(p.LockAll(under, rwlock.Writes("a", "b", "c"))).In(w)
		require.Zero(w, scriptsSent(w)-sent, "the owner holds them all")
		require.ErrorIs(w, m.Release(ctx), reentrant.ErrOrder)
		require.NoError(w, under.Err(), "nothing has changed")
		require.NoError(w, inner.Err())
		require.NoError(w, inner.Release(ctx))
		require.NoError(w, inner.Release(ctx))

		require.NoError(w, m.Release(ctx))
		require.ErrorIs(w, context.Cause(under), rwlock.ErrReleased)
		require.ErrorIs(w, m.Err(), rwlock.ErrReleased)
		require.NoError(w, m.Release(ctx))
		require.Empty(w, p.inspect("a").Holders)
		require.Len(w, p.inspect("b").Holders, 1, "the outer hold is not released")
		require.NoError(w, b.Release(ctx))

		mixed := expect.NoError(p.LockAll(ctx, append(rwlock.Reads("a", "b"), rwlock.Writes("d")...))).In(w)
		again := expect.NoError(p.TryLockAll(ctx, append(rwlock.Reads("b", "d"), rwlock.Writes("c")...))).In(w)
		for i, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write, rwlock.Write} { // a read in a write shares it
			require.Equal(w, mode, again.Holds()[i].Lease().Mode())
			fence := expect.NoError(fencing.Require(again.Context(ctx), again.Holds()[i].Lease().Name())).In(w)
			require.Equal(w, mode, fence.Mode)
		}
		require.NoError(w, again.Release(ctx))
		require.NoError(w, mixed.Release(ctx))
	})
}

// What the owner holds by itself counts for the order, whatever context it passes.
func TestOwnersWaitInOrder(t *testing.T) {
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		q := w.Process()
		m := must(w)(p.Lock(ctx, "m"))
		held := q.Take("a", rwlock.Write)
		for _, wants := range [][]rwlock.Want{
			rwlock.Writes("a"), rwlock.Writes("a", "z"), rwlock.Writes("z", "m", "a"),
			rwlock.Reads("a"), append(rwlock.Reads("m", "a"), rwlock.Writes("z")...),
		} {
			_, err := p.LockAll(ctx, wants, rwlock.WithMaxWait(time.Second))
			expect.Fails(w, err, rwlock.ErrLockOrder, `lock "a" is not free, and the owner holds lock "m"`)
			require.ErrorIs(w, expect.ErrorOf(p.TryLockAll(ctx, wants)), rwlock.ErrNotAcquired)
		}
		require.Equal(w, 2, must(w)(p.Lock(ctx, "m")).Depth(), "nothing nests in m")
		w.Release(held)
		require.NoError(w, expect.NoError(p.LockAll(ctx, rwlock.Writes("a", "z"))).In(w).Release(ctx), "it need not wait")

		held = q.Take("z", rwlock.Write)
		waits := p.lockAll(ctx, rwlock.Writes("a", "m", "z"))
		w.UntilWaiting("z", 1)
		w.Release(held)
		require.NoError(w, waits.granted(w).Release(ctx), "z comes after m")

		held = q.Take("a", rwlock.Write)
		other, _ := owned(w)
		waits = p.lockAll(other, rwlock.Writes("a", "z"))
		w.UntilWaiting("a", 1)
		w.Release(held)
		require.NoError(w, waits.granted(w).Release(other), "another owner does not hold m")
		require.NoError(w, m.Lease().Err())
	})
}

// A failure leaves the outer holds as they were, and no goroutine of the owner waits for what was given up.
func TestSeveralLocksThatFailLeaveNothing(t *testing.T) {
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		q := w.Process()
		a := must(w)(p.Lock(ctx, "a"))
		held := q.Take("c", rwlock.Write)
		errEnough := errors.New("enough")
		soon, cancel := context.WithCancelCause(ctx)
		waits := p.lockAll(soon, rwlock.Writes("a", "b", "c"))
		w.UntilWaiting("c", 1)
		cancel(errEnough)
		require.ErrorIs(w, waits.Result(), errEnough)
		require.Equal(w, 1, a.Depth())
		require.NoError(w, a.Release(ctx), "nothing nests in it")
		w.Release(held)
		m := expect.NoError(p.LockAll(ctx, rwlock.Writes("a", "b", "c"))).In(w)
		require.NoError(w, m.Release(ctx))

		r := must(w)(p.RLock(ctx, "b"))
		for _, wants := range [][]rwlock.Want{rwlock.Writes("a", "b"), append(rwlock.Reads("a"), rwlock.Writes("b")...)} {
			require.ErrorIs(w, expect.ErrorOf(p.LockAll(ctx, wants)), rwlock.ErrUpgrade)
			require.Empty(w, p.inspect("a").Holders, "nothing was sent")
		}
		m = expect.NoError(p.LockAll(ctx, append(rwlock.Writes("a"), rwlock.Reads("b")...))).In(w)
		require.NoError(w, m.Release(ctx))
		require.NoError(w, r.Release(ctx))
	})
}

// Under AsOwner the locks that the owner holds elsewhere are joined, and the others taken.
func TestSeveralLocksJoin(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := start(w), start(w)
		ctx, owner := owned(w)
		b := must(w)(p.Lock(ctx, "b"))
		there := reentrant.AsOwner(w.Ctx, owner)
		m := expect.NoError(q.LockAll(there, append(rwlock.Reads("c"), rwlock.Writes("b", "a")...))).In(w)
		require.Equal(w, b.Token(), m.Holds()[1].Token())
		require.Equal(w, rwlock.Read, m.Holds()[0].Lease().Mode())
		require.Equal(w, 2, p.inspect("b").Holders[0].Count)
		require.NoError(w, b.Release(ctx))
		require.NoError(w, m.Err())
		require.NoError(w, m.Release(there))
		for _, name := range []string{"a", "b", "c"} {
			require.Empty(w, p.inspect(name).Holders)
		}
		b = must(w)(p.Lock(ctx, "b"))
		a := w.Process().Take("a", rwlock.Write)
		_, err := q.LockAll(there, rwlock.Writes("a", "b"))
		require.ErrorIs(w, err, rwlock.ErrLockOrder, "the owner holds b elsewhere")
		require.Equal(w, 1, p.inspect("b").Holders[0].Count)
		w.Release(a)
		require.NoError(w, b.Release(ctx))
		b = must(w)(p.RLock(ctx, "b"))
		_, err = q.LockAll(there, append(rwlock.Reads("a"), rwlock.Writes("b")...))
		require.ErrorIs(w, err, rwlock.ErrUpgrade, "the owner reads b elsewhere")
		m = expect.NoError(q.LockAll(there, append(rwlock.Writes("a"), rwlock.Reads("b")...))).In(w)
		require.Equal(w, b.Token(), m.Holds()[1].Token())
		require.NoError(w, m.Release(there))
		require.NoError(w, b.Release(ctx))
	})
}

func TestDoAll(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		names := []string{"b", "a"}
		errWork := errors.New("work failed")
		var kept *reentrant.Hold
		err := p.DoAll(w.Ctx, rwlock.Writes(names...), func(ctx context.Context) error {
			kept = must(w)(p.Lock(ctx, "a")) // and never released
			require.NoError(w, p.DoAll(ctx, rwlock.Reads(names...), func(context.Context) error { return nil }))
			return errWork
		})
		expect.Fails(w, err, errWork, reentrant.ErrOrder)
		require.ErrorIs(w, kept.Lease().Err(), rwlock.ErrReleased)
		require.Empty(w, p.inspect("a").Holders)

		err = p.DoAll(w.Ctx, rwlock.Writes(names...), func(ctx context.Context) error {
			for _, key := range w.LockKeys() {
				w.Command("DEL", key)
			}
			w.UntilClosed(ctx.Done())
			return nil
		})
		require.ErrorIs(w, err, rwlock.ErrLost)
		require.True(w, rwlock.Completed(err))
		expect.Fails(w, err, `"a"`, `"b"`)
		ctx, _ := owned(w)
		require.Panics(w, func() { _ = p.DoAll(ctx, rwlock.Writes(names...), func(context.Context) error { panic("work") }) })
		require.NoError(w, expect.NoError(p.TryLockAll(ctx, rwlock.Writes(names...))).In(w).Release(ctx))
	})
}

func TestSeveralLocksRefuse(t *testing.T) {
	asOwner(t, inFakeTime, func(w *world, p *process, ctx context.Context) {
		fn := func(context.Context) error { return nil }
		for _, c := range []struct {
			wants []rwlock.Want
			opts  []rwlock.LockOption
			text  string
		}{
			{nil, nil, "wants: 0: must be 1 to 1000"},
			{make([]rwlock.Want, 1001), nil, "wants: 1001: must be 1 to 1000"},
			{rwlock.Writes("a", "a"), nil, `wants: "a": must not occur twice`},
			{append(rwlock.Reads("a"), rwlock.Writes("a")...), nil, `wants: "a": must not occur twice`},
			{[]rwlock.Want{{Name: "a"}}, nil, `mode: none: must be read or write, of lock "a"`},
			{rwlock.Writes("a", ""), nil, "name: 0 bytes: must be 1 to 512 bytes"},
			{rwlock.Writes("a"), []rwlock.LockOption{rwlock.WithTTL(time.Millisecond)}, "WithTTL: 1ms"},
			{rwlock.Writes("a", "b"), []rwlock.LockOption{nil}, "option: nil"},
		} {
			expect.Fails(w, expect.ErrorOf(p.LockAll(ctx, c.wants, c.opts...)), rwlock.ErrOption, c.text)
			require.ErrorContains(w, expect.ErrorOf(p.TryLockAll(ctx, c.wants, c.opts...)), c.text)
			require.ErrorContains(w, p.DoAll(ctx, c.wants, fn, c.opts...), c.text)
		}
		require.ErrorIs(w, p.DoAll(ctx, rwlock.Writes("a"), nil), rwlock.ErrOption)
		require.ErrorIs(w, expect.ErrorOf(p.LockAll(w.Ctx, rwlock.Writes("a"))), reentrant.ErrNoOwner)
		require.Zero(w, scriptsSent(w))
	})
}

package reentrant_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestNewReportsWhatItCannotWorkWith(t *testing.T) {
	inFakeTime(t, func(w *world) {
		remote := start(w).remote
		ctx, _ := owned(w)
		for field, l := range map[string]*reentrant.Locker{
			"locker":       reentrant.New(nil),
			"option":       reentrant.New(remote.Locker, nil),
			"WithMaxDepth": reentrant.New(remote.Locker, reentrant.WithMaxDepth(0)),
		} {
			for range 2 {
				_, err := l.Lock(ctx, "a")
				require.ErrorIs(w, err, rwlock.ErrOption)
				require.ErrorContains(w, err, field)
				require.ErrorIs(w, l.RDo(ctx, "a", func(context.Context) error { panic("not reached") }), rwlock.ErrOption)
			}
		}
		require.Zero(w, scriptsSent(w))
	})
}

func TestOptionsAreThoseOfTheFirstAcquisition(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		ctx, owner := owned(w)
		shared := make([]rwlock.LockOption, 0, 4) // with room for what the package adds: it must not add it there
		outer := must(w)(p.Lock(ctx, "a", append(shared, rwlock.WithMeta("outer"), rwlock.WithTTL(time.Minute))...))
		nested := must(w)(p.Lock(ctx, "a", rwlock.WithMeta("nested"), rwlock.WithTTL(time.Hour)))
		state := p.inspect("a")
		require.Len(w, state.Holders, 1)
		require.Equal(w, "outer", state.Holders[0].Meta)
		require.Equal(w, owner.String(), state.Holders[0].Owner)
		require.LessOrEqual(w, state.Holders[0].Remaining, time.Minute)
		require.Greater(w, state.Holders[0].Remaining, 50*time.Second)
		for _, unused := range shared[:4][2:] {
			require.Nil(w, unused)
		}
		require.NoError(w, nested.Release(ctx))
		require.NoError(w, outer.Release(ctx))
	})
}

func TestAnEndedContextTakesNothing(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		ctx, _ := owned(w)
		outer, nested := must(w)(p.Lock(ctx, "a")), must(w)(p.Lock(ctx, "a"))
		reason := errors.New("the caller has gone")
		ended, cancel := context.WithCancelCause(ctx)
		cancel(reason)
		_, err := p.Lock(ended, "a")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.ErrorIs(w, err, context.Canceled)
		require.ErrorIs(w, err, reason)
		require.NoError(w, nested.Release(ended), "what is there is given back all the same")
		require.NoError(w, outer.Release(ended), "nothing nests in it")
		require.Empty(w, p.inspect("a").Holders)
	})
}

// To use what this package has not made is a fault of the program.
func TestZeroValuesPanic(t *testing.T) {
	ctx := reentrant.WithOwner(t.Context())
	locker, hold, holds := new(reentrant.Locker), new(reentrant.Hold), new(reentrant.MultiHold)
	const made, several = "reentrant: a Locker is made by New", "reentrant: a MultiHold is made by a Locker"
	for _, c := range []struct {
		want string
		use  func()
	}{
		{made, func() { _, _ = locker.Lock(ctx, "n") }},
		{made, func() { _, _ = locker.TryRLock(ctx, "n") }},
		{made, func() { _ = locker.Do(ctx, "n", func(context.Context) error { return nil }) }},
		{"rwlock: a Locker is made by New or Open", func() { _, _ = reentrant.New(new(rwlock.Locker)).Lock(ctx, "n") }},
		{"reentrant: a Hold is made by a Locker", func() { _ = hold.Release(ctx) }},
		{"reentrant: a Hold is made by a Locker", func() { hold.Token() }},
		{"reentrant: a Hold is made by a Locker", func() { hold.Context(ctx) }},
		{several, func() { _ = holds.Err() }},
		{several, func() { _ = holds.Release(ctx) }},
		{several, func() { holds.Context(ctx) }},
		{several, func() { holds.Holds() }},
	} {
		require.PanicsWithValue(t, c.want, c.use)
	}
	require.NoError(t, (*reentrant.Hold)(nil).Release(ctx))
	require.NoError(t, (*reentrant.MultiHold)(nil).Release(ctx))
	_, err := reentrant.New(nil).Lock(ctx, "n")
	refused, ok := errors.AsType[*rwlock.OptionError](err)
	require.True(t, ok)
	require.Equal(t, "locker", refused.Option)
}

// Work that is nil is refused before the lock is asked for.
func TestNilWorkIsRefusedBeforeAnythingIsSent(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		w.Mini.ResetCalls()
		for _, do := range []func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error{
			p.Do, p.RDo,
		} {
			var refused *rwlock.OptionError
			require.ErrorAs(w, do(w.Ctx, "n", nil), &refused)
			require.Equal(w, "fn", refused.Option)
		}
		require.Empty(w, w.Mini.AllCalls())
		require.Empty(w, p.inspect("n").Holders)
	})
}

func TestLeasesShowTheHoldsOfAnOwner(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		ctx, owner := owned(w)
		require.Empty(w, slices.Collect(p.Leases()))
		outer := must(w)(p.Lock(ctx, "a"))
		must(w)(p.RLock(ctx, "a"))
		nested := must(w)(p.Lock(ctx, "a"))
		other := p.remote.Take("b", rwlock.Write)

		all := slices.Collect(p.Leases())
		require.Len(w, all, 1)
		require.Equal(w, "a", all[0].Name)
		require.Equal(w, owner.String(), all[0].Owner)
		require.NotEqual(w, owner.String(), all[0].Hold)
		require.Equal(w, outer.Token(), all[0].Token)
		require.Equal(w, 3, all[0].Count)
		require.Len(w, slices.Collect(p.remote.Leases()), 2)

		// The same owner in another process shares the lease on the masters, and has one hold there.
		q := start(w)
		joined := must(w)(q.Lock(elsewhere(w, owner), "a"))
		all = slices.Collect(q.Leases())
		require.Len(w, all, 1)
		require.Equal(w, 1, all[0].Count)
		require.Equal(w, owner.String(), all[0].Owner)
		require.NoError(w, joined.Release(ctx))

		require.NoError(w, nested.Release(ctx))
		for s := range p.Leases() {
			require.Equal(w, 2, s.Count)
		}
		w.Release(other)
		waiting, _ := owned(w)
		go func() { _, _ = p.Lock(waiting, "a") }()
		w.Settle()
		require.Len(w, slices.Collect(p.Leases()), 1, "without what waits")
	})
}

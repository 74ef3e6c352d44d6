package reentrant_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// What was not made by this package refuses its use with an *OptionError that says how it is made.
func TestZeroValuesAreRefused(t *testing.T) {
	ctx := reentrant.WithOwner(t.Context())
	nothing := func(context.Context) error { return nil }
	holdErr := func(_ *reentrant.Hold, err error) error { return err }
	locker, hold := new(reentrant.Locker), new(reentrant.Hold)
	for name, c := range map[string]struct {
		err    error
		option string
	}{
		"Locker.Lock":     {holdErr(locker.Lock(ctx, "n")), "reentrant.Locker"},
		"Locker.TryLock":  {holdErr(locker.TryLock(ctx, "n")), "reentrant.Locker"},
		"Locker.RLock":    {holdErr(locker.RLock(ctx, "n")), "reentrant.Locker"},
		"Locker.TryRLock": {holdErr(locker.TryRLock(ctx, "n")), "reentrant.Locker"},
		"Locker.Do":       {locker.Do(ctx, "n", nothing), "reentrant.Locker"},
		"Locker.RDo":      {locker.RDo(ctx, "n", nothing), "reentrant.Locker"},
		"of no locker":    {holdErr(reentrant.New(nil).Lock(ctx, "n")), "locker"},
		"of a zero one":   {holdErr(reentrant.New(new(rwlock.Locker)).Lock(ctx, "n")), "Locker"},
		"Hold.Release":    {hold.Release(ctx), "reentrant.Hold"},
		"Hold.Lease":      {hold.Lease().Err(), "Lease"},
		"Hold.Context":    {context.Cause(hold.Context(ctx)), "Lease"},
	} {
		var refused *rwlock.OptionError
		require.ErrorAs(t, c.err, &refused, name)
		require.Equal(t, c.option, refused.Option, name)
	}
	for _, hold := range []*reentrant.Hold{hold, nil} {
		require.Zero(t, hold.Depth())
		require.Zero(t, hold.Token())
		require.ErrorIs(t, hold.Lease().Err(), rwlock.ErrOption)
		require.ErrorIs(t, context.Cause(hold.Context(ctx)), rwlock.ErrOption)
	}
	require.NoError(t, (*reentrant.Hold)(nil).Release(ctx))
}

// Work that is nil is refused before the lock is asked for.
func TestNilWorkIsRefusedBeforeAnythingIsSent(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, mini *testredis.Mini) {
		p := w.process()
		mini.ResetCalls()
		for _, do := range []func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error{
			p.Do, p.RDo,
		} {
			var refused *rwlock.OptionError
			require.ErrorAs(t, do(t.Context(), "n", nil), &refused)
			require.Equal(t, "fn", refused.Option)
		}
		require.Empty(t, mini.AllCalls())
		require.Empty(t, p.inspect(t, "n").Holders)
	})
}

package sqlguard_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// A Guard that was not made by New says so, and sends nothing.
func TestTheZeroGuardIsRefused(t *testing.T) {
	var d database
	guard, ctx, db := new(sqlguard.Guard), t.Context(), d.open(t)
	f := fencing.Fence{Resource: "orders/42", Token: 7, Mode: fencing.Write}
	_, _, statement := guard.Statement(f)
	_, seen := guard.Seen(ctx, db, "orders/42")
	for name, err := range map[string]error{
		"Statement": statement, "Seen": seen,
		"Claim":  guard.Claim(ctx, db, f),
		"Derive": guard.Derive(ctx, db, f),
		"Create": guard.Create(ctx, db),
		"Do":     guard.Do(ctx, db, f, func(context.Context, *sql.Tx) error { return nil }),
	} {
		require.ErrorIs(t, err, sqlguard.ErrOption, name)
		require.ErrorContains(t, err, "make it with New", name)
	}
	require.Empty(t, guard.Schema())
	require.Zero(t, d.sent.Load())
}

// Work and an option that are nil are refused before anything is sent: the claim of a read would be committed.
func TestNilArgumentsAreRefused(t *testing.T) {
	for _, dialect := range dialects {
		_, err := sqlguard.New(dialect, nil)
		require.ErrorIs(t, err, sqlguard.ErrOption)
		guard, err := sqlguard.New(dialect)
		require.NoError(t, err)
		var d database
		db := d.open(t)
		for _, mode := range []fencing.Mode{fencing.Read, fencing.Write} {
			f := fencing.Fence{Resource: "orders/42", Token: 7, Mode: mode}
			require.ErrorIs(t, guard.Do(t.Context(), db, f, nil), sqlguard.ErrOption)
		}
		require.Zero(t, d.sent.Load())
	}
}

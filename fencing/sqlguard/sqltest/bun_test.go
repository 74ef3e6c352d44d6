package sqltest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// The handles of bun fit, and send something else.
func TestHandlesOfBun(t *testing.T) {
	store := servers.Store("SQLite")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	x := bun.NewDB(db, sqlitedialect.New())
	tx, err := x.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	for _, handle := range []sqlguard.Tx{x, tx, &tx} {
		require.ErrorIs(t, guard.Claim(t.Context(), handle, write("a", 5)), sqlguard.ErrOption)
		require.ErrorIs(t, guard.Derive(t.Context(), handle, write("a", 5)), sqlguard.ErrOption)
		_, err := guard.Seen(t.Context(), handle, "a")
		require.ErrorIs(t, err, sqlguard.ErrOption)
	}
	require.NoError(t, guard.Claim(t.Context(), tx.Tx, write("a", 5)), "the handle inside")
	require.NoError(t, tx.Commit())
	requireGuards(t, guard, x.DB, "b")
}

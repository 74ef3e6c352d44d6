package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// Whatever becomes of a read, its connection writes as before.
func TestReadsLeaveNothingBehindOnTheConnection(t *testing.T) {
	store := servers.Store("SQLite")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	db.SetMaxOpenConns(1)
	makeAccounts(t, db, 1)
	spoil := func(_ context.Context, tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE accounts SET balance = -1 WHERE id = 0`)
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, guard.Do(ctx, db, read("a", 5), spoil), sqlguard.ErrReadOnly)
	require.ErrorIs(t, guard.Do(ctx, db, read("a", 5), func(ctx context.Context, tx *sql.Tx) error {
		defer cancel()
		return spoil(ctx, tx)
	}), context.Canceled)
	require.PanicsWithValue(t, "boom", func() {
		_ = guard.Do(t.Context(), db, read("a", 5), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, spoil(ctx, tx))
			panic("boom")
		})
	})
	require.Equal(t, []int{0}, balances(t, db))
	require.NoError(t, guard.Do(t.Context(), db, write("a", 6), spoil))
	require.Equal(t, []int{-1}, balances(t, db))
}

// A register that no holder has raised, such as one that was written by hand, and to which no one can be added.
func TestRegisterBeyondEveryToken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		require.NoError(t, guard.Claim(t.Context(), db, write("a", 5)))
		_, err := db.Exec(`UPDATE fencelock_guard SET max_write = 9223372036854775807`)
		require.NoError(t, err)
		for _, f := range []fencing.Fence{read("a", 6), write("a", 6)} {
			err := guard.Claim(t.Context(), db, f)
			require.Error(t, err)
			if store.Dialect == sqlguard.MySQL {
				require.ErrorIs(t, err, sqlguard.ErrNoVerdict)
			}
		}
	})
}

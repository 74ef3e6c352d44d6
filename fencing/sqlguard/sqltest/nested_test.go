package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// Inside its own write a claim of the resource would wait for the row that this write has locked.
func TestDoInsideDo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 2)
		limit, cancel := context.WithTimeout(t.Context(), eventLimit)
		defer cancel()
		err := guard.Do(limit, db, write("a", 5), func(ctx context.Context, tx *sql.Tx) error {
			for _, f := range []fencing.Fence{write("a", 5), write("a", 6), read("a", 5)} {
				err := guard.Do(ctx, db, f, nothing)
				require.ErrorIs(t, err, sqlguard.ErrNested, "%v", f)
				require.ErrorContains(t, err, `"a"`)
				require.ErrorIs(t, guard.Do(ctx, sqlx.NewDb(db, store.Name), f, nothing), sqlguard.ErrNested)
				require.ErrorIs(t, guard.Claim(ctx, db, f), sqlguard.ErrNested)
				require.ErrorIs(t, guard.Derive(ctx, db, f), sqlguard.ErrNested)
			}
			require.NoError(t, guard.Claim(ctx, tx, write("a", 5)), "in the same transaction")
			return updateBalance(ctx, tx, store.Dialect, 0, 50)
		})
		require.NoError(t, err, "the section itself is not harmed")
		require.Equal(t, []int{50, 0}, balances(t, db))
	})
}

func TestDoOnAnotherResourceInsideDo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		if store.Dialect == sqlguard.SQLite {
			t.Skip("one writer at a time")
		}
		makeAccounts(t, db, 2)
		require.Equal(t, errUndo, guard.Do(t.Context(), db, write("a", 5), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, 50))
			require.NoError(t, guard.Do(ctx, db, write("b", 6), func(ctx context.Context, tx *sql.Tx) error {
				return updateBalance(ctx, tx, store.Dialect, 1, 60)
			}))
			return errUndo
		}))
		require.Equal(t, []int{0, 60}, balances(t, db), "a transaction of its own")
	})
}

// A read holds no row, so what is inside it waits for nobody.
func TestDoInsideARead(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		require.NoError(t, guard.Do(t.Context(), db, read("a", 5), func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, guard.Do(ctx, db, read("a", 5), nothing))
			return guard.Do(ctx, db, write("a", 5), nothing)
		}))
	})
}

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// With these settings a statement outside of a transaction does not commit by itself, always or after the first COMMIT
// on its connection. What the guard sends through a pool is committed all the same, and leaves no lock behind.
func TestServersThatCommitNothingByThemselves(t *testing.T) {
	test := func(t *testing.T, store sqltest.Store, _ *sql.DB, _ *sqlguard.Guard) {
		for _, setting := range []string{"autocommit=0", "completion_type=1"} {
			t.Run(setting, func(t *testing.T) {
				driver, dsn := store.Database(t)
				db, others := sqltest.Open(t, driver, dsn+"?"+setting), sqltest.Open(t, driver, dsn+"?innodb_lock_wait_timeout=1")
				db.SetMaxOpenConns(1) // each transaction follows the others on one connection
				guard := newGuard(t, store, others)
				makeAccounts(t, others, 1)
				requireA := func(want fencing.Registers) {
					t.Helper()
					for _, handle := range []*sql.DB{others, db} {
						requireSeen(t, guard, handle, map[string]fencing.Registers{"a": want})
					}
				}
				require.NoError(t, guard.Do(t.Context(), db, write("a", 1), nothing))
				require.NoError(t, guard.Claim(t.Context(), db, write("a", 10)))
				requireA(fencing.Registers{MaxWrite: 10})
				require.NoError(t, guard.Derive(t.Context(), db, write("a", 10)))
				require.ErrorIs(t, guard.Claim(t.Context(), db, write("a", 9)), fencing.ErrStale)
				require.NoError(t, guard.Do(t.Context(), others, write("a", 11), nothing))
				requireA(fencing.Registers{MaxWrite: 11})
				for range 2 {
					require.NoError(t, guard.Do(t.Context(), db, read("a", 12), reading(others)))
					require.NoError(t, guard.Do(t.Context(), db, write("b", 12), writing(others)))
				}
				require.NoError(t, guard.DoAll(t.Context(), db, []fencing.Fence{read("c", 13), read("a", 13)}, reading(others)))
				require.NoError(t, guard.DoAll(t.Context(), db, []fencing.Fence{write("d", 14), read("a", 14)}, writing(others)))
				requireA(fencing.Registers{MaxWrite: 11, MaxRead: 14})
				require.Equal(t, []int{12}, balances(t, others))

				result, err := others.Exec(`UPDATE accounts SET fence = 20 WHERE fence > 99`)
				require.NoError(t, err)
				const lookup = `SELECT fence FROM accounts WHERE id = ?`
				require.ErrorIs(t, store.Dialect.CheckUpdate(t.Context(), db, account(0, 15), result, lookup, 0), sqlguard.ErrNoRow)
				require.NoError(t, guard.Claim(t.Context(), others, write("a", 15)), "nothing is locked")
				require.NoError(t, update(t, store.Dialect, others, 0, 15, 15), "nothing is locked")
			})
		}
	}
	onStores(t, test, "MariaDB", "MySQL")
}

// reading fails unless it runs in one snapshot, in which it cannot write.
func reading(others *sql.DB) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		if sees, err := seesChanges(ctx, tx, others); err != nil || sees {
			return fmt.Errorf("a read that sees changes: %t: %w", sees, err)
		}
		if _, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = 0`); err == nil {
			return errors.New("a read that writes")
		}
		return nil
	}
}

// writing fails unless it runs at READ COMMITTED.
func writing(others *sql.DB) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		if sees, err := seesChanges(ctx, tx, others); err != nil || !sees {
			return fmt.Errorf("a write that sees changes: %t: %w", sees, err)
		}
		_, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = 12`)
		return err
	}
}

func seesChanges(ctx context.Context, tx *sql.Tx, others *sql.DB) (bool, error) {
	var before, after int
	const query = `SELECT balance FROM accounts WHERE id = 0`
	err := tx.QueryRowContext(ctx, query).Scan(&before)
	if err == nil {
		_, err = others.ExecContext(ctx, `UPDATE accounts SET balance = balance + 1`)
	}
	if err == nil {
		err = tx.QueryRowContext(ctx, query).Scan(&after)
	}
	return before != after, err
}

// A claim that more may follow changes the guard row also if it raises nothing: where several servers take writes,
// only that is compared with what another one does. The claim of a read that commits by itself does not, or each read
// would be a write of all servers.
func TestClaimsThatChangeTheirRow(t *testing.T) {
	test := func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		requireCounted := func(want int, err error) {
			t.Helper()
			require.NoError(t, err)
			var got int
			require.NoError(t, db.QueryRow(`SELECT claims FROM fencelock_guard WHERE resource = 'a'`).Scan(&got))
			require.Equal(t, want, got)
		}
		r, w := read("a", 7), write("a", 7)
		for range 2 {
			requireCounted(0, guard.Claim(t.Context(), db, r))
			requireCounted(0, guard.Do(t.Context(), db, r, nothing))
		}
		_ = guard.DoAll(t.Context(), db, []fencing.Fence{r, read("b", 7)}, nothing) // makes the row of b
		_, err := db.Exec(`UPDATE fencelock_guard SET claims = 0`)
		require.NoError(t, err)
		requireCounted(0, guard.DoAll(t.Context(), db, []fencing.Fence{r, read("b", 7)}, nothing))

		requireCounted(1, guard.DoAll(t.Context(), db, []fencing.Fence{r, write("b", 7)}, nothing))
		requireCounted(2, ownTransaction(t, db, r, guard.Claim, nothing))
		requireCounted(3, ownTransaction(t, db, r, guard.Derive, nothing))
		requireCounted(4, guard.Derive(t.Context(), db, r))
		requireCounted(5, guard.Claim(t.Context(), db, w))
		requireCounted(6, guard.Do(t.Context(), db, w, nothing))
		requireCounted(7, guard.DoAll(t.Context(), db, []fencing.Fence{w, write("b", 7)}, nothing))
		query, args, err := guard.Statement(r)
		require.NoError(t, err)
		_, err = db.Exec(query, args...)
		requireCounted(8, err)
	}
	onStores(t, test, "MariaDB", "MySQL")
}

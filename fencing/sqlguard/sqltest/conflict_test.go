package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// Whoever waits for a row that another transaction inserts and then rolls back gets a lock of the gap that it leaves,
// together with all others that wait: their inserts are a deadlock.
func TestDeadlockOfClaimsIsRetried(t *testing.T) {
	test := func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		const claims = 6
		for _, resource := range []string{"a", "b", "c", "d"} {
			absent := begin(t, db)
			require.NoError(t, guard.Claim(t.Context(), absent, write(resource, 1)))
			done := make(chan error, claims)
			for n := range claims {
				f := write(resource, 2)
				if n == 0 {
					f = read(resource, 2)
				}
				go func() { done <- guard.Do(t.Context(), db, f, nothing) }()
			}
			awaitLockWaits(t, store, db, claims)
			require.NoError(t, absent.Rollback())
			for range claims {
				require.NoError(t, <-done)
			}
		}
	}
	onStores(t, test, "MariaDB", "MySQL")
}

// The claim of a read is a transaction of its own, at the level that the database has by default. Its snapshot may be
// from before it waits for the row.
func TestSerializationFailureOfAClaimIsRetried(t *testing.T) {
	for name, setting := range map[string]string{
		"PostgreSQL": "&default_transaction_isolation=repeatable%20read",
		"MariaDB":    "?innodb_snapshot_isolation=1&tx_isolation='SERIALIZABLE'",
	} {
		t.Run(name, func(t *testing.T) {
			store := servers.Store(name)
			driver, dsn := store.Database(t)
			db := sqltest.Open(t, driver, dsn+setting)
			guard := newGuard(t, store, db)
			require.NoError(t, guard.Claim(t.Context(), db, write("a", 1)))
			older := begin(t, db)
			require.NoError(t, guard.Claim(t.Context(), older, write("a", 5)))
			done := make(chan error, 1)
			go func() { done <- guard.Do(t.Context(), db, read("a", 7), nothing) }()
			awaitLockWait(t, store, db)
			require.NoError(t, older.Commit())
			require.NoError(t, <-done)
		})
	}
}

// With this setting a row that has changed since the snapshot rolls everything back, the claim too, and the server goes
// on: outside of a transaction, and no longer read-only.
func TestRecordThatHasChangedIsAConflict(t *testing.T) {
	store := servers.Store("MariaDB")
	driver, dsn := store.Database(t)
	db := sqltest.Open(t, driver, dsn+"?innodb_snapshot_isolation=1&tx_isolation='REPEATABLE-READ'")
	guard := newGuard(t, store, db)
	makeAccounts(t, db, 1)
	own := begin(t, db)
	require.NoError(t, guard.Claim(t.Context(), own, write("a", 5)))
	_, err := selectBalance(t.Context(), own, store.Dialect, 0)
	require.NoError(t, err)
	_, err = db.Exec(`UPDATE accounts SET balance = 1`)
	require.NoError(t, err)
	err = updateBalance(t.Context(), own, store.Dialect, 0, 5)
	require.True(t, sqlguard.IsConflict(err), "%v", err)
	require.NoError(t, guard.Claim(t.Context(), db, write("a", 4)), "the claim was rolled back")

	var conflict error
	err = guard.Do(t.Context(), db, read("a", 5), func(ctx context.Context, tx *sql.Tx) error {
		_, err := db.Exec(`UPDATE accounts SET balance = 2`)
		require.NoError(t, err)
		conflict = tx.QueryRow(`SELECT balance FROM accounts WHERE id = 0 LOCK IN SHARE MODE`).Scan(new(int))
		require.True(t, sqlguard.IsConflict(conflict), "%v", conflict)
		_ = updateBalance(ctx, tx, store.Dialect, 0, -1)
		return nil
	})
	require.ErrorIs(t, err, sqlguard.ErrTransactionEnded)
	require.True(t, sqlguard.IsConflict(guard.Do(t.Context(), db, read("a", 5), func(context.Context, *sql.Tx) error {
		return conflict
	})))
}

package sqltest_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// Whoever waits for a row that another transaction inserts and then rolls back gets a lock of the gap that it leaves,
// together with all others that wait: their inserts are a deadlock.
func TestDeadlockOfClaimsIsRetried(t *testing.T) {
	onMySQLAndMariaDB(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
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
	})
}

// The claim of a read is a transaction of its own, at the level that the database has by default.
func TestSerializationFailureOfAClaimIsRetried(t *testing.T) {
	store := servers.Store("PostgreSQL")
	driver, dsn := store.Database(t)
	db := sqltest.Open(t, driver, dsn+"&default_transaction_isolation=repeatable%20read")
	guard := newGuard(t, store, db)
	require.NoError(t, guard.Claim(t.Context(), db, write("a", 1)))

	older := begin(t, db)
	require.NoError(t, guard.Claim(t.Context(), older, write("a", 5)))
	done := make(chan error, 1)
	go func() { done <- guard.Do(t.Context(), db, read("a", 7), nothing) }()
	awaitLockWait(t, store, db)
	require.NoError(t, older.Commit())
	require.NoError(t, <-done)
}

func TestConflictOfTheWorkIsClassified(t *testing.T) {
	onEveryServer(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		err := deadlock(t, store, db, guard, func(_ *sql.Tx, err error) error { return err })
		require.True(t, sqlguard.IsConflict(err), "%v", err)
		seen, err := guard.Seen(t.Context(), db, "accounts")
		require.NoError(t, err)
		require.Zero(t, seen, "the claim was rolled back with the rest")
	})
}

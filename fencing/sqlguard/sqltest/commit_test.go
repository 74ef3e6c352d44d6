package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
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

func send(text string) work {
	return func(_ context.Context, tx *sql.Tx) error {
		_, err := tx.Exec(text)
		return err
	}
}

// endings are the ways in which work can end its transaction. After some of them another one is open.
func endings(d sqlguard.Dialect) []string {
	all := []string{`COMMIT`, `ROLLBACK`}
	switch d {
	case sqlguard.PostgreSQL:
		return append(all, `COMMIT; BEGIN`, `ROLLBACK; BEGIN`, `COMMIT AND CHAIN`, `ROLLBACK AND CHAIN`)
	case sqlguard.SQLite:
		return append(all, `COMMIT; BEGIN`, `ROLLBACK; BEGIN`)
	default:
		return append(all, `CREATE TABLE other (id INT)`, `START TRANSACTION`, `COMMIT AND CHAIN`, `ROLLBACK AND CHAIN`)
	}
}

func TestTransactionThatEndedInsideTheWork(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		for i, ending := range endings(store.Dialect) {
			f := account(0, fencing.Token(2*i+1))
			err := guard.Do(t.Context(), db, f, func(_ context.Context, tx *sql.Tx) error {
				require.NoError(t, send(ending)(t.Context(), tx))
				f.Token++
				require.NoError(t, guard.Do(t.Context(), db, f, nothing), "nobody holds the row any more")
				return updateBalance(t.Context(), tx, store.Dialect, 0, -1)
			})
			require.ErrorIs(t, err, sqlguard.ErrTransactionEnded, ending)
			require.False(t, sqlguard.IsConflict(err))
			if ending == `CREATE TABLE other (id INT)` {
				continue // which a read-only transaction refuses
			}
			err = guard.Do(t.Context(), db, read("b", 1), func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, send(ending)(ctx, tx))
				if !strings.HasSuffix(ending, "CHAIN") { // into one that is read-only too
					_ = updateBalance(ctx, tx, store.Dialect, 0, -2)
				}
				return nil
			})
			require.ErrorIs(t, err, sqlguard.ErrTransactionEnded, "read: %s", ending)
		}
	})
}

// Savepoints are the work's own, whatever their names.
func TestSavepointsInsideTheWork(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		require.NoError(t, guard.Do(t.Context(), db, account(0, 5), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, send(`SAVEPOINT a`)(ctx, tx))
			require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, -1))
			require.NoError(t, send(`ROLLBACK TO SAVEPOINT a`)(ctx, tx))
			require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, 5))
			return send(`RELEASE SAVEPOINT a`)(ctx, tx)
		}))
		require.Equal(t, []int{5}, balances(t, db))
	})
}

// deadlock makes the work under some claims the victim of a deadlock, and returns what DoAll did.
func deadlock(
	t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard, claims int,
	onVictim func(*sql.Tx, error) error,
) error {
	t.Helper()
	_, err := db.Exec(`UPDATE accounts SET balance = 0`)
	require.NoError(t, err)
	other := begin(t, db)
	for id := 2; id < 40; id++ { // MySQL and MariaDB roll back the one that has changed less
		require.NoError(t, updateBalance(t.Context(), other, store.Dialect, id, 7))
	}
	done := make(chan error, 1)
	runs := 0
	fences := []fencing.Fence{write("accounts", 10), read("rates", 10)}
	err = guard.DoAll(t.Context(), db, fences[:claims], func(_ context.Context, tx *sql.Tx) error {
		runs++
		if store.Dialect == sqlguard.PostgreSQL { // it rolls back the one whose patience ends first
			require.NoError(t, send(`SET LOCAL deadlock_timeout = '10ms'`)(t.Context(), tx))
			require.NoError(t, send(`SET deadlock_timeout = '10min'`)(t.Context(), other))
		}
		require.NoError(t, updateBalance(t.Context(), tx, store.Dialect, 1, 100))
		go func() { done <- updateBalance(t.Context(), other, store.Dialect, 1, 7) }()
		awaitLockWait(t, store, db)
		err := updateBalance(t.Context(), tx, store.Dialect, 2, 100)
		require.Error(t, err)
		return onVictim(tx, err)
	})
	require.NoError(t, <-done)
	require.NoError(t, other.Commit())
	require.Equal(t, 1, runs, "work that has run is not run again")
	return err
}

func TestDeadlockOfTheWork(t *testing.T) {
	onEveryServer(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 50)
		for _, claims := range []int{1, 2} {
			err := deadlock(t, store, db, guard, claims, func(_ *sql.Tx, err error) error { return err })
			require.True(t, sqlguard.IsConflict(err), "%v", err)
			requireSeen(t, guard, db, map[string]fencing.Registers{"accounts": {}, "rates": {}})
		}
		err := deadlock(t, store, db, guard, 2, func(tx *sql.Tx, _ error) error {
			_ = updateBalance(t.Context(), tx, store.Dialect, 49, 100) // as if nothing had happened
			return nil
		})
		require.Error(t, err)
		if store.Dialect == sqlguard.MySQL {
			require.ErrorIs(t, err, sqlguard.ErrTransactionEnded)
		}
		require.False(t, sqlguard.IsConflict(err), "not to be repeated: a part of it may be committed")
		require.Equal(t, 7, balances(t, db)[1])
	})
}

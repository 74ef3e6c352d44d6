package sqltest_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

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

// deadlock makes the work under some claims the victim of a deadlock, and returns what DoAll did. The work gives
// onVictim the error of its statement.
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

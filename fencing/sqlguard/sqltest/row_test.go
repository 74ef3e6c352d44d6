package sqltest_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// texts are the recipes of a dialect.
type texts struct{ update, upsert, lookup string }

func textsOf(d sqlguard.Dialect) texts {
	if d == sqlguard.MySQL {
		return texts{
			update: `UPDATE accounts SET balance = ?, fence = LAST_INSERT_ID(?) WHERE id = ? AND fence <= ?`,
			upsert: `INSERT INTO accounts (id, balance, fence) VALUES (?, ?, ?)
				ON DUPLICATE KEY UPDATE
				balance = IF(fence <= VALUES(fence), VALUES(balance), balance), fence = GREATEST(fence, VALUES(fence))`,
			lookup: `SELECT fence FROM accounts WHERE id = ?`,
		}
	}
	t := texts{
		update: `UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $4`,
		upsert: `INSERT INTO accounts (id, balance, fence) VALUES ($1, $2, $3)
			ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
			WHERE accounts.fence <= excluded.fence`,
		lookup: `SELECT fence FROM accounts WHERE id = $1`,
	}
	if d == sqlguard.SQLite {
		t.update = strings.ReplaceAll(t.update, "$", "?")
		t.upsert = strings.ReplaceAll(t.upsert, "$", "?")
		t.lookup = strings.ReplaceAll(t.lookup, "$", "?")
	}
	return t
}

func account(id int, token fencing.Token) fencing.Fence {
	return write(fmt.Sprint("accounts/", id), token)
}

func update(t testing.TB, d sqlguard.Dialect, tx sqlguard.Tx, id, balance int, token fencing.Token) error {
	t.Helper()
	result, err := tx.ExecContext(t.Context(), textsOf(d).update, balance, token, id, token)
	require.NoError(t, err)
	return d.CheckUpdate(t.Context(), tx, account(id, token), result, textsOf(d).lookup, id)
}

func upsert(t testing.TB, d sqlguard.Dialect, tx sqlguard.Tx, id, balance int, token fencing.Token) error {
	t.Helper()
	result, err := tx.ExecContext(t.Context(), textsOf(d).upsert, id, balance, token)
	require.NoError(t, err)
	return d.CheckUpsert(t.Context(), tx, account(id, token), result, textsOf(d).lookup, id)
}

// onEveryRowStore runs a test on each store, and on MariaDB and MySQL also with a
// client that counts found rows instead of changed ones.
func onEveryRowStore(t *testing.T, test func(*testing.T, sqlguard.Dialect, *sql.DB)) {
	t.Helper()
	for _, store := range servers.Stores() {
		t.Run(store.Name, func(t *testing.T) { test(t, store.Dialect, store.Open(t)) })
		if store.Dialect == sqlguard.MySQL {
			t.Run(store.Name+", found rows", func(t *testing.T) {
				driver, dsn := store.Database(t)
				test(t, store.Dialect, sqltest.Open(t, driver, dsn+"?clientFoundRows=true"))
			})
		}
	}
}

func TestFenceColumn(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 1)
		for id, put := range map[int]func(testing.TB, sqlguard.Dialect, sqlguard.Tx, int, int, fencing.Token) error{
			0: update, 1: upsert, // which inserts account 1
		} {
			require.NoError(t, put(t, d, db, id, 10, 5))
			require.NoError(t, put(t, d, db, id, 10, 5), "the same values again")
			require.NoError(t, put(t, d, db, id, 11, 5), "the same token again")
			require.NoError(t, put(t, d, db, id, 11, 7))
			stale := &fencing.StaleError{Resource: account(id, 0).Resource, Got: 6, Seen: 7}
			require.Equal(t, stale, put(t, d, db, id, 99, 6))
		}
		require.Equal(t, []int{11, 11}, balances(t, db))
		require.ErrorIs(t, update(t, d, db, 2, 99, 6), sqlguard.ErrNoRow)
		require.NotErrorIs(t, update(t, d, db, 2, 99, 6), fencing.ErrStale)
	})
}

// The snapshot of a transaction may be older than what its UPDATE was refused by;
// it holds the caller's own, equal token.
func TestRefusedUpdateInATransactionWithASnapshot(t *testing.T) {
	store := servers.Stores()[1]
	db := store.Open(t)
	makeAccounts(t, db, 1)
	require.NoError(t, update(t, store.Dialect, db, 0, 10, 5))

	old, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer func() { _ = old.Rollback() }()
	var balance int
	require.NoError(t, old.QueryRow(`SELECT balance FROM accounts`).Scan(&balance))

	require.NoError(t, update(t, store.Dialect, db, 0, 20, 6))
	require.ErrorIs(t, update(t, store.Dialect, old, 0, 99, 5), fencing.ErrStale)
	require.ErrorIs(t, upsert(t, store.Dialect, old, 0, 99, 5), fencing.ErrStale)
}

func TestLookupThatFails(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 0)
		result, err := db.Exec(textsOf(d).update, 10, 5, 0, 5)
		require.NoError(t, err)
		err = d.CheckUpdate(t.Context(), db, account(0, 5), result, `SELECT no_such_column FROM accounts`)
		require.ErrorContains(t, err, "no_such_column")
		require.NotErrorIs(t, err, fencing.ErrStale)
		require.NotErrorIs(t, err, sqlguard.ErrNoRow)
	})
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

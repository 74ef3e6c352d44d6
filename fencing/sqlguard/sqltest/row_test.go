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
		require.NoError(t, update(t, d, db, 0, 10, 5))
		require.NoError(t, update(t, d, db, 0, 10, 5), "the same values again")
		require.NoError(t, update(t, d, db, 0, 11, 5), "the same token again")
		require.NoError(t, update(t, d, db, 0, 11, 7))
		require.Equal(t, &fencing.StaleError{Resource: "accounts/0", Got: 6, Seen: 7}, update(t, d, db, 0, 99, 6))
		require.ErrorIs(t, update(t, d, db, 1, 99, 6), sqlguard.ErrNoRow)
		require.NotErrorIs(t, update(t, d, db, 1, 99, 6), fencing.ErrStale)
		require.Equal(t, []int{11}, balances(t, db))
	})
}

func TestFencedUpsert(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 0)
		require.NoError(t, upsert(t, d, db, 0, 10, 5), "inserts")
		require.NoError(t, upsert(t, d, db, 0, 10, 5), "the same values again")
		require.NoError(t, upsert(t, d, db, 0, 11, 5), "the same token again")
		require.NoError(t, upsert(t, d, db, 0, 11, 7))
		require.Equal(t, &fencing.StaleError{Resource: "accounts/0", Got: 6, Seen: 7}, upsert(t, d, db, 0, 99, 6))
		require.NoError(t, upsert(t, d, db, 1, 20, 6))
		require.Equal(t, []int{11, 20}, balances(t, db))
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

// The row came into being after the UPDATE had found none: nothing was written,
// so it must not count as success. With an equal token MySQL cannot tell it from
// a row that was there; only statements of one holder can do that to each other.
func TestRowThatAppearsAfterTheUpdate(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 0)
		text := textsOf(d)
		for id, token := range []fencing.Token{4, 5} {
			if d == sqlguard.MySQL && token == 5 {
				continue
			}
			result, err := db.Exec(text.update, 10, 5, id, 5)
			require.NoError(t, err)
			_, err = db.Exec(fmt.Sprintf(`INSERT INTO accounts VALUES (%d, 0, %d)`, id, token))
			require.NoError(t, err)
			err = d.CheckUpdate(t.Context(), db, account(id, 5), result, text.lookup, id)
			require.ErrorIs(t, err, sqlguard.ErrNoRow)
		}
	})
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

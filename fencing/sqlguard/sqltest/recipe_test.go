package sqltest_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// withdraw takes an amount from account 0 if it is there. marks says whether the statement has MySQL's LAST_INSERT_ID.
func withdraw(t *testing.T, d sqlguard.Dialect, db *sql.DB, amount int, token fencing.Token, marks bool) error {
	t.Helper()
	text := `UPDATE accounts SET balance = balance - ?, fence = ? WHERE fence <= ? AND balance >= ?`
	if marks && d == sqlguard.MySQL {
		text = strings.Replace(text, "fence = ?", "fence = LAST_INSERT_ID(?)", 1)
	}
	result, err := db.Exec(numbered(d, text), amount, token, token, amount)
	require.NoError(t, err)
	return d.CheckUpdate(t.Context(), db, account(0, token), result, textsOf(d).lookup, 0)
}

func TestUnmetConditionUnderAnEqualTokenIsNoSuccess(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 1)
		require.NoError(t, update(t, d, db, 0, 50, 7))
		refused := sqlguard.ErrNoRow
		if d == sqlguard.MySQL {
			refused = sqlguard.ErrNoVerdict
		}
		for _, marks := range []bool{true, false} {
			require.ErrorIs(t, withdraw(t, d, db, 80, 7, marks), refused)
			require.ErrorIs(t, withdraw(t, d, db, 80, 8, marks), sqlguard.ErrNoRow, "a newer token, which did not get in")
			require.ErrorIs(t, withdraw(t, d, db, 10, 6, marks), fencing.ErrStale)
		}
		require.Equal(t, []int{50}, balances(t, db))
		require.NoError(t, withdraw(t, d, db, 50, 7, true))
		require.NoError(t, withdraw(t, d, db, 0, 7, true), "changes nothing, and the condition is met")
	})
}

// MySQL's count alone does not tell the values that were there already from a condition that was not met.
func TestSameValuesWithoutLastInsertID(t *testing.T) {
	for _, name := range []string{"MariaDB", "MySQL"} {
		t.Run(name, func(t *testing.T) {
			db := servers.Store(name).Open(t)
			makeAccounts(t, db, 1)
			require.NoError(t, update(t, sqlguard.MySQL, db, 0, 0, 7))
			require.ErrorIs(t, withdraw(t, sqlguard.MySQL, db, 0, 7, false), sqlguard.ErrNoVerdict)
		})
	}
}

// A column that is assigned without the IF is written under any token, so that MySQL counts a change.
func TestStaleUpsertWithAColumnThatDecidesNothing(t *testing.T) {
	for _, name := range []string{"MariaDB", "MySQL"} {
		t.Run(name, func(t *testing.T) {
			db := servers.Store(name).Open(t)
			makeAccounts(t, db, 1)
			_, err := db.Exec(`ALTER TABLE accounts ADD touched INT NOT NULL DEFAULT 0`)
			require.NoError(t, err)
			put := func(balance int, token fencing.Token) error {
				tx := begin(t, db)
				result, err := tx.Exec(`INSERT INTO accounts (id, balance, fence) VALUES (0, ?, ?)
					ON DUPLICATE KEY UPDATE balance = IF(fence <= VALUES(fence), VALUES(balance), balance),
					touched = touched + 1, fence = GREATEST(fence, VALUES(fence))`, balance, token)
				require.NoError(t, err)
				text := textsOf(sqlguard.MySQL).lookup
				err = sqlguard.MySQL.CheckUpsert(t.Context(), tx, account(0, token), result, text, 0)
				if err != nil {
					require.NoError(t, tx.Rollback())
					return err
				}
				return tx.Commit()
			}
			require.NoError(t, put(10, 10))
			require.NoError(t, put(11, 10))
			require.Equal(t, &fencing.StaleError{Resource: "accounts/0", Got: 5, Seen: 10}, put(99, 5))
			var touched int
			require.NoError(t, db.QueryRow(`SELECT touched FROM accounts`).Scan(&touched))
			require.Equal(t, 2, touched)
			require.Equal(t, []int{11}, balances(t, db))
		})
	}
}

// The recipe for rows that end: the fence stays, so that a stale upsert finds it.
func TestRowMarkedAsDeletedRefusesAStaleUpsert(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 0)
		require.NoError(t, upsert(t, d, db, 0, 10, 5))
		_, err := db.Exec(`ALTER TABLE accounts ADD deleted INT NOT NULL DEFAULT 0`)
		require.NoError(t, err)
		text := strings.Replace(textsOf(d).update, "balance = ", "deleted = ", 1)
		result, err := db.Exec(text, 1, 10, 0, 10)
		require.NoError(t, err)
		require.NoError(t, d.CheckUpdate(t.Context(), db, account(0, 10), result, textsOf(d).lookup, 0))

		require.ErrorIs(t, upsert(t, d, db, 0, 555, 5), fencing.ErrStale)
		require.Equal(t, []int{10}, balances(t, db))
	})
}

// The newer holder deletes the row between the refusal and the question by what: no success, and no leave to insert.
func TestRowDeletedBeforeTheLookup(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 1)
		text := textsOf(d)
		for name, c := range map[string]struct {
			text  string
			args  []any
			check func(sql.Result) error
		}{
			"update": {text.update, []any{99, 5, 0, 5}, func(result sql.Result) error {
				return d.CheckUpdate(t.Context(), db, account(0, 5), result, text.lookup, 0)
			}},
			"upsert": {text.upsert, []any{0, 99, 5}, func(result sql.Result) error {
				return d.CheckUpsert(t.Context(), db, account(0, 5), result, text.lookup, 0)
			}},
		} {
			require.NoError(t, upsert(t, d, db, 0, 10, 10))
			result, err := db.Exec(c.text, c.args...)
			require.NoError(t, err)
			_, err = db.Exec(`DELETE FROM accounts`)
			require.NoError(t, err)
			require.ErrorIs(t, c.check(result), sqlguard.ErrNoRow, name)
		}
	})
}

func TestFenceThatIsNull(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		_, err := db.Exec(`CREATE TABLE accounts (id BIGINT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT)`)
		require.NoError(t, err)
		_, err = db.Exec(`INSERT INTO accounts VALUES (0, 50, NULL)`)
		require.NoError(t, err)
		require.ErrorIs(t, update(t, d, db, 0, 80, 7), sqlguard.ErrNoVerdict)
		require.ErrorIs(t, upsert(t, d, db, 0, 80, 7), sqlguard.ErrNoVerdict)
		require.Equal(t, []int{50}, balances(t, db))
	})
}

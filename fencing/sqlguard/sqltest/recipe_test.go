package sqltest_test

import (
	"database/sql"
	"errors"
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
		// MySQL's count alone does not tell this from a condition that was not met.
		err := withdraw(t, d, db, 0, 7, false)
		require.True(t, err == nil || d == sqlguard.MySQL && errors.Is(err, sqlguard.ErrNoVerdict), "%v", err)
	})
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

// A column that allows NULL, and one of floating point, which rounds tokens: it is seen where a fence is looked up.
func TestFenceThatIsNoToken(t *testing.T) {
	for column, fence := range map[string]string{"BIGINT": "NULL", "REAL NOT NULL": "1763712345678901"} {
		onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
			for _, text := range []string{
				`CREATE TABLE accounts (id BIGINT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL, fence ` + column + `)`,
				`INSERT INTO accounts VALUES (0, 50, ` + fence + `)`,
			} {
				_, err := db.Exec(text)
				require.NoError(t, err)
			}
			require.ErrorIs(t, update(t, d, db, 0, 80, 7), sqlguard.ErrNoVerdict, column)
			require.ErrorIs(t, upsert(t, d, db, 0, 80, 7), sqlguard.ErrNoVerdict, column)
			require.Equal(t, []int{50}, balances(t, db))
		})
	}
}

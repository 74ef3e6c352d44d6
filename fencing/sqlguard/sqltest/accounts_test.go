package sqltest_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// makeAccounts makes accounts 0 to n-1 with balance and fence 0.
func makeAccounts(tb testing.TB, db *sql.DB, n int) {
	tb.Helper()
	_, err := db.Exec(`CREATE TABLE accounts (
		id BIGINT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL)`)
	require.NoError(tb, err)
	for id := range n {
		_, err := db.Exec(fmt.Sprintf(`INSERT INTO accounts VALUES (%d, 0, 0)`, id))
		require.NoError(tb, err)
	}
}

func balances(tb testing.TB, db *sql.DB) (all []int) {
	tb.Helper()
	rows, err := db.Query(`SELECT balance FROM accounts ORDER BY id`)
	require.NoError(tb, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var balance int
		require.NoError(tb, rows.Scan(&balance))
		all = append(all, balance)
	}
	require.NoError(tb, rows.Err())
	return all
}

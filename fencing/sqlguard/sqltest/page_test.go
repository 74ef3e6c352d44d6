package sqltest_test

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// onPage returns the statements of docs/fencing-sql.md that match a pattern.
func onPage(t *testing.T, pattern string) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/fencing-sql.md")
	require.NoError(t, err)
	found := regexp.MustCompile(pattern).FindAllString(string(page), -1)
	require.NotEmpty(t, found)
	return found
}

// shown is the token in the statements of the page.
const shown = fencing.Token(1763712345678901)

func TestResetOfTheGuardTable(t *testing.T) {
	names := map[sqlguard.Dialect]string{
		sqlguard.PostgreSQL: "-- PostgreSQL", sqlguard.MySQL: "-- MySQL, MariaDB", sqlguard.SQLite: "-- SQLite",
	}
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		for _, f := range []fencing.Fence{read("orders/42", fencing.MaxToken), write("orders/42", fencing.MaxToken)} {
			require.NoError(t, guard.Claim(t.Context(), db, f))
		}
		for _, statement := range onPage(t, `(?m)^UPDATE fencelock_guard .*\n.*$`) {
			if !strings.HasSuffix(statement, names[store.Dialect]) {
				continue
			}
			result, err := db.Exec(statement)
			require.NoError(t, err)
			changed, err := result.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 1, changed)
		}
		require.ErrorIs(t, guard.Claim(t.Context(), db, write("orders/42", shown-1)), fencing.ErrStale)
		require.NoError(t, guard.Claim(t.Context(), db, write("orders/42", shown)))
	})
}

func TestOldRowsOfTheGuardTableAreDeleted(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		for _, f := range []fencing.Fence{
			write("old", shown-1), read("read lately", shown), write("written lately", shown), write("read lately", 1),
		} {
			_ = guard.Claim(t.Context(), db, f)
		}
		for _, statement := range onPage(t, `(?m)^DELETE FROM fencelock_guard .*$`) {
			_, err := db.Exec(statement)
			require.NoError(t, err)
		}
		requireSeen(t, guard, db, map[string]fencing.Registers{
			"old": {}, "read lately": {MaxRead: shown}, "written lately": {MaxWrite: shown},
		})
	})
}

func TestFenceColumnThatIsAdded(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		_, err := db.Exec(`CREATE TABLE accounts (id BIGINT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL)`)
		require.NoError(t, err)
		_, err = db.Exec(`INSERT INTO accounts VALUES (0, 50)`)
		require.NoError(t, err)
		for _, statement := range onPage(t, `ALTER TABLE accounts [^`+"`"+`]*`) {
			_, err := db.Exec(statement)
			require.NoError(t, err)
		}
		require.NoError(t, update(t, d, db, 0, 60, 1))
		require.ErrorIs(t, update(t, d, db, 0, 70, 0), fencing.ErrStale)
	})
}

package sqltest_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// Names that some collation, padding, escape or quoting would confuse with
// another one, or take for SQL. All of them are different locks.
var hostileNames = []string{
	"a", "A", "á", "a\u0301", "ａ", "a ", "a  ", " a", "a\x00", "a\x00\x00", "\x00a", "\x00", "\n", "a\n", "",
	"ß", "ss", "SS", "ı", "i", "I", "İ", "\ufeffa", "😀", "😁",
	"'", "''", `"`, "`", `\`, `\'`, `\\`, "%", "_", "?", "$1", ":resource", ":token", "{table}", "--", "/*", ";",
	"' OR '1'='1", "'; DROP TABLE fencelock_guard; --", `"; DROP TABLE fencelock_guard; --`,
	"`; DROP TABLE fencelock_guard; -- ", `\'; DROP TABLE fencelock_guard; -- `,
	"a'); DELETE FROM fencelock_guard WHERE ('1'='1", "' UNION SELECT 0, 0 --", "0x61", "X'61'", `\x61`, "NULL", "0",
	strings.Repeat("x", fencing.MaxResource), strings.Repeat("x", fencing.MaxResource-1),
	strings.Repeat("😀", fencing.MaxResource/4), strings.Repeat("'", fencing.MaxResource),
	strings.Repeat("\x00", fencing.MaxResource), strings.Repeat("\x00", fencing.MaxResource-1),
}

func TestHostileNamesAreNamesAndNothingElse(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		testHostileNames(t, db, guard)
		var rows int
		require.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM fencelock_guard`).Scan(&rows))
		require.Equal(t, len(hostileNames)-1, rows, "one row a name; the empty one is no name")
	})
}

// The MySQL driver can put arguments into the text itself: the same names, then
// quoted by the driver.
func TestHostileNamesInterpolatedByTheDriver(t *testing.T) {
	for _, name := range []string{"MariaDB", "MySQL"} {
		t.Run(name, func(t *testing.T) {
			store := servers.Store(name)
			driver, dsn := store.Database(t)
			db := sqltest.Open(t, driver, dsn+"?interpolateParams=true&charset=utf8mb4")
			testHostileNames(t, db, newGuard(t, store, db))
		})
	}
}

func testHostileNames(t *testing.T, db *sql.DB, guard *sqlguard.Guard) {
	t.Helper()
	for i, name := range hostileNames {
		if name == "" {
			require.ErrorIs(t, guard.Claim(t.Context(), db, write(name, 1)), fencing.ErrMalformed)
			continue
		}
		token := fencing.Token(100 + i)
		require.NoError(t, guard.Claim(t.Context(), db, write(name, token)), "%q", name)
	}
	for i, name := range hostileNames {
		if name == "" {
			continue
		}
		token := fencing.Token(100 + i)
		seen, err := guard.Seen(t.Context(), db, name)
		require.NoError(t, err, "%q", name)
		require.Equal(t, fencing.Registers{MaxWrite: token}, seen, "%q", name)

		err = guard.Do(t.Context(), db, write(name, token-1), nothing)
		require.Equal(t, &fencing.StaleError{Resource: name, Got: token - 1, Seen: token}, err)
	}
}

// FuzzNames compares the guard with the rule, whatever the name.
func FuzzNames(f *testing.F) {
	for _, name := range hostileNames {
		f.Add(name)
	}
	guard, err := sqlguard.New(sqlguard.SQLite)
	require.NoError(f, err)
	db := servers.Store("SQLite").Open(f)
	require.NoError(f, guard.Create(f.Context(), db))
	f.Fuzz(func(t *testing.T, name string) {
		fence := write(name, 7)
		if fence.Validate() != nil {
			require.ErrorIs(t, guard.Claim(t.Context(), db, fence), fencing.ErrMalformed)
			return
		}
		require.NoError(t, guard.Claim(t.Context(), db, fence))
		require.ErrorIs(t, guard.Claim(t.Context(), db, write(name, 6)), fencing.ErrStale)
		seen, err := guard.Seen(t.Context(), db, name)
		require.NoError(t, err)
		require.Equal(t, fencing.Registers{MaxWrite: 7}, seen)
	})
}

func TestTablesOfAnyAcceptedName(t *testing.T) {
	for _, store := range servers.Stores() {
		for _, name := range []string{"order", "select", "_", "g1", strings.Repeat("a", 63)} {
			t.Run(fmt.Sprintf("%s/%.8s", store.Name, name), func(t *testing.T) {
				db := store.Open(t)
				guard, err := sqlguard.New(store.Dialect, sqlguard.WithTable(name))
				require.NoError(t, err)
				require.NoError(t, guard.Create(t.Context(), db))
				require.NoError(t, guard.Create(t.Context(), db), "it exists")
				require.NoError(t, guard.Claim(t.Context(), db, write("a", 2)))
				require.ErrorIs(t, guard.Claim(t.Context(), db, read("a", 1)), fencing.ErrStale)
			})
		}
	}
}

func TestTableInASchema(t *testing.T) {
	store := servers.Store("PostgreSQL")
	db := store.Open(t)
	_, err := db.Exec(`CREATE SCHEMA locks`)
	require.NoError(t, err)
	guard, err := sqlguard.New(store.Dialect, sqlguard.WithTable("locks.guard"))
	require.NoError(t, err)
	require.NoError(t, guard.Create(t.Context(), db))
	require.NoError(t, guard.Claim(t.Context(), db, write("a", 2)))
	var token fencing.Token
	require.NoError(t, db.QueryRow(`SELECT max_write FROM locks.guard`).Scan(&token))
	require.Equal(t, fencing.Token(2), token)
}

// The handles of bun fit, and send something else.
func TestHandlesOfBun(t *testing.T) {
	store := servers.Store("SQLite")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	x := bun.NewDB(db, sqlitedialect.New())
	tx, err := x.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	for _, handle := range []sqlguard.Tx{x, tx, &tx} {
		require.ErrorIs(t, guard.Claim(t.Context(), handle, write("a", 5)), sqlguard.ErrOption)
		require.ErrorIs(t, guard.Derive(t.Context(), handle, write("a", 5)), sqlguard.ErrOption)
		_, err := guard.Seen(t.Context(), handle, "a")
		require.ErrorIs(t, err, sqlguard.ErrOption)
	}
	require.NoError(t, guard.Claim(t.Context(), tx.Tx, write("a", 5)), "the handle inside")
	require.NoError(t, tx.Commit())
	requireGuards(t, guard, x.DB, "b")
}

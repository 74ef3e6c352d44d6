package sqltest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// Names that some collation, padding, escape or quoting would confuse with
// another one, or take for SQL. All of them are different locks.
var hostileNames = []string{
	"a", "A", "á", "a\u0301", "ａ", "a ", "a  ", " a", "a\x00", "a\x00\x00", "\x00a", "\x00", "\n", "a\n",
	"ß", "ss", "SS", "ı", "i", "I", "İ", "\ufeffa", "😀", "😁",
	"'", "''", `"`, "`", `\`, `\'`, `\\`, "%", "_", "?", "$1", ":resource", ":token", "{table}", "--", "/*", ";",
	"' OR '1'='1", "'; DROP TABLE fencelock_guard; --", `"; DROP TABLE fencelock_guard; --`,
	"`; DROP TABLE fencelock_guard; -- ", `\'; DROP TABLE fencelock_guard; -- `,
	"a'); DELETE FROM fencelock_guard WHERE ('1'='1", "' UNION SELECT 0, 0 --", "0x61", "X'61'", `\x61`, "NULL", "0",
	strings.Repeat("x", fencing.MaxResource), strings.Repeat("x", fencing.MaxResource-1),
	strings.Repeat("😀", fencing.MaxResource/4), strings.Repeat("'", fencing.MaxResource),
	strings.Repeat("\x00", fencing.MaxResource), strings.Repeat("\x00", fencing.MaxResource-1),
}

// Also where the MySQL driver puts arguments into the text itself, quoted.
func TestHostileNamesAreNamesAndNothingElse(t *testing.T) {
	test := func(t *testing.T, store sqltest.Store, settings string) {
		driver, dsn := store.Database(t)
		db := sqltest.Open(t, driver, dsn+settings)
		guard := newGuard(t, store, db)
		for i, name := range hostileNames {
			require.NoError(t, guard.Claim(t.Context(), db, write(name, fencing.Token(100+i))), "%q", name)
		}
		for i, name := range hostileNames {
			token := fencing.Token(100 + i)
			requireSeen(t, guard, db, map[string]fencing.Registers{name: {MaxWrite: token}})
			err := guard.Do(t.Context(), db, write(name, token-1), nothing)
			require.Equal(t, &fencing.StaleError{Resource: name, Got: token - 1, Seen: token}, err)
		}
		var rows int
		require.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM fencelock_guard`).Scan(&rows))
		require.Equal(t, len(hostileNames), rows, "one row a name")
	}
	for _, store := range servers.Stores() {
		t.Run(store.Name, func(t *testing.T) { test(t, store, "") })
		if store.Dialect == sqlguard.MySQL {
			t.Run(store.Name+", interpolated", func(t *testing.T) { test(t, store, "?interpolateParams=true&charset=utf8mb4") })
		}
	}
}

// FuzzNames compares the guard with the rule, whatever the name.
func FuzzNames(f *testing.F) {
	for _, name := range append(hostileNames, "") {
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
		t.Run(store.Name, func(t *testing.T) {
			db := store.Open(t)
			names := []string{"order", "select", "_", "g1", strings.Repeat("a", 63)}
			if store.Dialect == sqlguard.PostgreSQL {
				_, err := db.Exec(`CREATE SCHEMA locks`)
				require.NoError(t, err)
				names = append(names, "locks.guard")
			}
			for _, name := range names {
				guard, err := sqlguard.New(store.Dialect, sqlguard.WithTable(name))
				require.NoError(t, err)
				require.NoError(t, guard.Create(t.Context(), db))
				require.NoError(t, guard.Create(t.Context(), db), "it exists")
				require.NoError(t, guard.Claim(t.Context(), db, write("a", 2)))
				require.ErrorIs(t, guard.Claim(t.Context(), db, read("a", 1)), fencing.ErrStale)
			}
		})
	}
}

package sqlguard_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// How the guards behave is tested in the module sqltest, on real databases. Here
// is what needs none.

var dialects = []sqlguard.Dialect{sqlguard.PostgreSQL, sqlguard.MySQL, sqlguard.SQLite}

func TestDialects(t *testing.T) {
	names := []string{"PostgreSQL", "MySQL", "SQLite"}
	for i, d := range dialects {
		require.Equal(t, names[i], d.String())
	}
	for _, d := range []sqlguard.Dialect{0, 4, 255} {
		_, err := sqlguard.New(d)
		require.ErrorIs(t, err, sqlguard.ErrOption)
		require.ErrorContains(t, err, d.String())
	}
	_, err := sqlguard.New(sqlguard.SQLite, nil)
	require.ErrorIs(t, err, sqlguard.ErrOption)
}

var badTables = []string{
	"", ".", "a.", ".a", "a.b.c", "a..b", "1a", "A", "fencelock_Guard", "a b", "a-b", "é", "a\n", "\na", "a\x00",
	`a"`, "a`", "a'", "a;", "a; DROP TABLE users", `a" (x); --`, "a`; --", "a/**/b", "a$b", "a.1b", "{table}", ":token",
	strings.Repeat("a", 64), "a." + strings.Repeat("a", 64),
}

func TestTablesThatAreRefused(t *testing.T) {
	for _, d := range dialects {
		for _, name := range badTables {
			_, err := sqlguard.New(d, sqlguard.WithTable(name))
			require.ErrorIs(t, err, sqlguard.ErrTable, "%q", name)
		}
	}
}

func FuzzTable(f *testing.F) {
	for _, name := range append(badTables, "a", "a.b", "_", "fencelock_guard", "select") {
		f.Add(name)
	}
	fence := fencing.Fence{Resource: "r", Token: 1, Mode: fencing.Write}
	f.Fuzz(func(t *testing.T, name string) {
		for _, d := range dialects {
			guard, err := sqlguard.New(d, sqlguard.WithTable(name))
			if err != nil {
				require.ErrorIs(t, err, sqlguard.ErrTable)
				continue
			}
			plain, err := sqlguard.New(d)
			require.NoError(t, err)
			// The name is one quoted identifier or two, and changes nothing else.
			require.Equal(t, tableless(plain.Schema()), tableless(guard.Schema()))
			one, _, err := plain.Statement(fence)
			require.NoError(t, err)
			other, _, err := guard.Statement(fence)
			require.NoError(t, err)
			require.Equal(t, tableless(one), tableless(other))
		}
	})
}

var quoted = regexp.MustCompile("([\"`])[a-z_][a-z0-9_]*([\"`])(\\.[\"`][a-z_][a-z0-9_]*[\"`])?")

func tableless(statement string) string { return quoted.ReplaceAllString(statement, "(table)") }

func TestStatementCarriesItsArguments(t *testing.T) {
	const resource = "it's a :token"
	for _, d := range dialects {
		for _, mode := range []fencing.Mode{fencing.Read, fencing.Write} {
			guard, err := sqlguard.New(d)
			require.NoError(t, err)
			query, args, err := guard.Statement(fencing.Fence{Resource: resource, Token: 7, Mode: mode})
			require.NoError(t, err)
			want := []any{[]byte(resource), int64(7)}
			if d == sqlguard.MySQL { // once for each placeholder; that of a read is counted
				want = map[fencing.Mode][]any{
					fencing.Read:  {want[0], want[1], int64(1), want[1], want[1]},
					fencing.Write: {want[0], want[1], want[1], want[1]},
				}[mode]
			}
			require.Equal(t, want, args)
			require.NotRegexp(t, `[:{]`, query, "a parameter is left over")
		}
	}
}

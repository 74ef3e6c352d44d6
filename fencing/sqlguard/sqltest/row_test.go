package sqltest_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
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

// onEveryRowStore runs a test on each store, and on MariaDB and MySQL also with a client that counts found rows.
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

// The snapshot may be older than what its UPDATE was refused by; it holds the caller's own, equal token.
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

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// awaitLockWait returns when some transaction waits for a lock of another.
func awaitLockWait(t *testing.T, store sqltest.Store, db *sql.DB) {
	t.Helper()
	awaitLockWaits(t, store, db, 1)
}

func awaitLockWaits(t *testing.T, store sqltest.Store, db *sql.DB, n int) {
	t.Helper()
	query := map[sqlguard.Dialect]string{
		sqlguard.PostgreSQL: `SELECT 'waiting', COUNT(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND datname = current_database()`,
		sqlguard.MySQL: `SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'`,
	}[store.Dialect]
	if query == "" {
		return // SQLite's waiters poll, and nobody can see them
	}
	require.Eventually(t, func() bool {
		var name string
		var waiting int
		require.NoError(t, db.QueryRow(query).Scan(&name, &waiting))
		return waiting >= n
	}, eventLimit, 2*time.Millisecond)
}

// eventLimit bounds the wait for what must happen, however slow the machine is.
const eventLimit = 2 * time.Minute

// The verdict on a token waits for the transaction that has claimed a newer one, or that stores what was derived from
// an older read, on a row that is there already and on one that both would insert.
func TestVerdictWaitsForTheTransactionBefore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		for _, c := range []struct {
			resource         string // says it all
			present, commits bool
			check            func(context.Context, sqlguard.Tx, fencing.Fence) error
			first            fencing.Token
			stale            bool // the one that waits
		}{
			{"present, commits", true, true, guard.Claim, 9, true},
			{"present, rolls back", true, false, guard.Claim, 9, false},
			{"absent, commits", false, true, guard.Claim, 9, true},
			{"absent, rolls back", false, false, guard.Claim, 9, false},
			{"present, derives", true, true, guard.Derive, 7, false},
			{"absent, derives", false, true, guard.Derive, 7, false},
		} {
			if c.present {
				require.NoError(t, guard.Claim(t.Context(), db, write(c.resource, 1)))
			}
			first := begin(t, db)
			require.NoError(t, c.check(t.Context(), first, write(c.resource, c.first)))
			verdict := make(chan error, 1)
			go func() { verdict <- guard.Do(t.Context(), db, write(c.resource, 8), nothing) }()
			awaitLockWait(t, store, db)
			require.Empty(t, verdict, "%s: decided beside an open transaction", c.resource)
			end := first.Rollback
			if c.commits {
				end = first.Commit
			}
			require.NoError(t, end())
			require.Equal(t, c.stale, errors.Is(<-verdict, fencing.ErrStale), c.resource)
		}
	})
}

func TestReadersRunSideBySideAndBesideAWriter(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		requireBalance := func(tx *sql.Tx, want int) {
			t.Helper()
			balance, err := selectBalance(t.Context(), tx, store.Dialect, 0)
			require.NoError(t, err)
			require.Equal(t, want, balance)
		}
		// Each runs to its end while the one before is still inside.
		err := guard.Do(t.Context(), db, read("a", 5), func(_ context.Context, five *sql.Tx) error {
			return guard.Do(t.Context(), db, read("a", 7), func(_ context.Context, seven *sql.Tx) error {
				require.NoError(t, guard.Do(t.Context(), db, read("a", 4), nothing), "an older reader")
				require.ErrorIs(t, guard.Do(t.Context(), db, write("a", 6), nothing), fencing.ErrStale)
				require.NoError(t, guard.Do(t.Context(), db, write("a", 8), func(ctx context.Context, tx *sql.Tx) error {
					return updateBalance(ctx, tx, store.Dialect, 0, 100)
				}))
				requireBalance(seven, 0) // the snapshot of its check
				requireBalance(five, 0)
				return nil
			})
		})
		require.NoError(t, err)
		require.NoError(t, guard.Do(t.Context(), db, read("a", 9), func(_ context.Context, tx *sql.Tx) error {
			requireBalance(tx, 100)
			return nil
		}))
	})
}

func TestPausedWriterIsRefusedAfterANewerReader(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		require.NoError(t, guard.Do(t.Context(), db, write("a", 1), nothing), "first write, then the pause")
		require.NoError(t, guard.Do(t.Context(), db, read("a", 2), nothing))
		err := guard.Do(t.Context(), db, write("a", 1), nothing)
		require.Equal(t, &fencing.StaleError{Resource: "a", Got: 1, Seen: 2}, err)
	})
}

func TestDoRollsBackOnErrorAndPanic(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		spoil := func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, -1))
			return errUndo
		}
		fences := []fencing.Fence{write("a", 5), read("b", 5)}
		require.Equal(t, errUndo, guard.DoAll(t.Context(), db, fences, spoil))
		require.PanicsWithValue(t, errUndo, func() {
			_ = guard.DoAll(t.Context(), db, fences, func(ctx context.Context, tx *sql.Tx) error { panic(spoil(ctx, tx)) })
		})
		require.Equal(t, []int{0}, balances(t, db))
		requireSeen(t, guard, db, map[string]fencing.Registers{"a": {}, "b": {}})
	})
}

func TestReadTransactionsDoNotWrite(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		db.SetMaxOpenConns(1) // whatever becomes of a read, its connection writes as before
		statements := []string{`UPDATE accounts SET balance = -1 WHERE id = 0`, `DELETE FROM accounts`}
		if store.Dialect != sqlguard.MySQL { // where DDL ends the transaction, which is an error of its own
			statements = append(statements, `CREATE TABLE others (id INT)`)
		}
		for _, statement := range statements {
			err := guard.Do(t.Context(), db, read("a", 5), send(statement))
			require.Error(t, err, statement)
			require.Contains(t, strings.ToLower(err.Error()), "read", statement)
			require.Equal(t, []int{0}, balances(t, db), statement)
		}
		_, err := db.Exec(`CREATE TABLE others (id INT)`)
		require.NoError(t, err, "it was not made")
	})
}

// What SQLite counts as no change of a row, in each database of the connection.
func TestReadsOfSQLiteChangeNoDatabase(t *testing.T) {
	store := servers.Store("SQLite")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, other := store.Database(t)
	_, err = conn.ExecContext(t.Context(), `ATTACH '`+other+`' AS "a, ""b"`)
	require.NoError(t, err)
	require.NoError(t, guard.Do(t.Context(), conn, read("a", 5), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TEMP TABLE mine (id INT)`)
		return err
	}), "temp is the connection's own")
	for _, database := range []string{`main`, `"a, ""b"`} {
		for _, statement := range []string{
			`CREATE TABLE %s.others (id INT)`, `PRAGMA %s.user_version = 4`, `PRAGMA %s.application_id = 77`,
		} {
			statement = fmt.Sprintf(statement, database)
			err := guard.Do(t.Context(), conn, read("a", 5), send(statement))
			require.ErrorIs(t, err, sqlguard.ErrReadOnly, statement)
			require.NotErrorIs(t, err, sqlguard.ErrTransactionEnded, statement)
		}
		for pragma, query := range map[string]string{
			"application_id": `PRAGMA %s.application_id`,
			"tables":         `SELECT count(*) FROM %s.sqlite_master WHERE name = 'others'`,
		} {
			var left int
			require.NoError(t, conn.QueryRowContext(t.Context(), fmt.Sprintf(query, database)).Scan(&left))
			require.Zero(t, left, "%s of %s", pragma, database)
		}
	}
	require.NoError(t, guard.Do(t.Context(), conn, read("a", 5), nothing))
}

// The row was deleted between the refusal and the question by what.
func TestRefusalStandsThoughTheRegistersAreGone(t *testing.T) {
	test := func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		require.NoError(t, guard.Claim(t.Context(), db, write("a", 5)))
		require.ErrorIs(t, guard.Claim(t.Context(), forgetful{db}, write("a", 4)), fencing.ErrStale)
	}
	onStores(t, test, "PostgreSQL", "SQLite") // MySQL answers in one statement
}

// forgetful deletes the registers before each query.
type forgetful struct{ *sql.DB }

func (f forgetful) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if _, err := f.ExecContext(ctx, `DELETE FROM fencelock_guard`); err != nil {
		panic(err)
	}
	return f.DB.QueryRowContext(ctx, query, args...)
}

// beginHook lets something happen just before a transaction begins.
type beginHook struct {
	*sql.DB
	before func()
}

func (h beginHook) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	h.before()
	return h.DB.BeginTx(ctx, opts)
}

// The transaction of a read begins after its claims: a newer writer that was at one of the resources in between is one
// that it must not be mixed up with.
func TestReadersOfSeveralResourcesAreOvertaken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		for i, overtaken := range []string{"a", "b", "alone"} {
			token := fencing.Token(10 * (i + 1))
			fences, last := []fencing.Fence{read("a", token), read("b", token)}, 2 // the claims are a transaction
			if overtaken == "alone" {
				fences, last = []fencing.Fence{read(overtaken, token)}, 1
				if store.Dialect == sqlguard.MySQL {
					last = 2
				}
			}
			begun := 0
			overtaking := beginHook{DB: db, before: func() {
				if begun++; begun == last {
					require.NoError(t, guard.Do(t.Context(), db, write(overtaken, token+1), nothing))
				}
			}}
			require.NoError(t, guard.DoAll(t.Context(), db, fences, nothing), "the rows exist")
			err := guard.DoAll(t.Context(), overtaking, fences, unreached(t))
			require.Equal(t, &fencing.StaleError{Resource: overtaken, Got: token, Seen: token + 1}, err)
		}
	})
}

// What work reads under a read fence is as current as what it writes, until the commit.
func TestAReadFenceBesideAWriteFenceExcludesWriters(t *testing.T) {
	onEveryServer(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		written := make(chan error, 1)
		fences := []fencing.Fence{write("b", 5), read("a", 5)}
		require.NoError(t, guard.DoAll(t.Context(), db, fences, func(context.Context, *sql.Tx) error {
			go func() { written <- guard.Do(t.Context(), db, write("a", 6), nothing) }()
			awaitLockWait(t, store, db)
			return nil
		}))
		require.NoError(t, <-written)
	})
}

type storeTest = func(*testing.T, sqltest.Store, *sql.DB, *sqlguard.Guard)

// onEveryStore runs a test on each store with a fresh database and guard table.
func onEveryStore(t *testing.T, test storeTest) {
	t.Helper()
	onStores(t, test, "PostgreSQL", "MariaDB", "MySQL", "SQLite")
}

// onEveryServer leaves out SQLite, which has one writer at a time, and so no deadlocks.
func onEveryServer(t *testing.T, test storeTest) {
	t.Helper()
	onStores(t, test, "PostgreSQL", "MariaDB", "MySQL")
}

func onStores(t *testing.T, test storeTest, names ...string) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			store := servers.Store(name)
			db := store.Open(t)
			test(t, store, db, newGuard(t, store, db))
		})
	}
}

func newGuard(tb testing.TB, store sqltest.Store, db sqlguard.DB) *sqlguard.Guard {
	tb.Helper()
	guard, err := sqlguard.New(store.Dialect)
	require.NoError(tb, err)
	require.NoError(tb, guard.Create(tb.Context(), db))
	return guard
}

func read(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Read}
}

func write(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Write}
}

var errUndo = errors.New("undo")

func nothing(context.Context, *sql.Tx) error { return nil }

// unreached is work under a fence that is refused.
func unreached(t *testing.T) work {
	return func(context.Context, *sql.Tx) error {
		t.Error("work ran under a fence that is refused")
		return nil
	}
}

// ownTransaction runs inside in a transaction of db that begins with a check.
func ownTransaction(
	t *testing.T, db *sql.DB, f fencing.Fence, check func(context.Context, sqlguard.Tx, fencing.Fence) error,
	inside work,
) error {
	return unguarded(t.Context(), db, f, func(ctx context.Context, tx *sql.Tx) error {
		if err := check(ctx, tx, f); err != nil {
			return err
		}
		return inside(ctx, tx)
	})
}

// anyFences are up to limit fences of as many resources, of which some are stale.
func anyFences(rng *rand.Rand, limit int) (fences []fencing.Fence) {
	for _, i := range rng.Perm(3)[:1+rng.IntN(limit)] {
		mode := fencing.Mode(1 + rng.IntN(2))
		fences = append(fences, fencing.Fence{Resource: fmt.Sprint(i), Token: fencing.Token(1 + rng.IntN(40)), Mode: mode})
	}
	return fences
}

// Every kind of access against the rule in Go: whether the work runs, what a refusal says, and which registers rise.
func TestRuleAgreesWithTheModel(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		rounds := 10
		if store.Dialect == sqlguard.SQLite {
			rounds = 100
		}
		for range rounds {
			_, err := db.Exec(`DELETE FROM fencelock_guard`)
			require.NoError(t, err)
			model := map[string]fencing.Registers{}
			for range 60 {
				kind, undo, ran := rng.IntN(4), rng.IntN(4) == 0, false
				fences := anyFences(rng, []int{1, 1, 1, 3}[kind])
				inside := func(context.Context, *sql.Tx) error {
					ran = true
					if undo {
						return errUndo
					}
					return nil
				}
				var got error
				switch kind {
				case 0:
					got = guard.Do(t.Context(), db, fences[0], inside)
				case 1:
					got = ownTransaction(t, db, fences[0], guard.Claim, inside)
				case 2:
					got = ownTransaction(t, db, fences[0], guard.Derive, inside)
				default:
					got = guard.DoAll(t.Context(), db, fences, inside)
				}
				refusals := refusalsOf(model, fences, kind == 2)
				about := fmt.Sprintf("%v kind=%d undo=%t after %v", fences, kind, undo, model)
				require.Equal(t, len(refusals) == 0, ran, about)
				switch {
				case !ran:
					require.Contains(t, refusals, got, about)
				case undo:
					require.ErrorIs(t, got, errUndo, about)
				default:
					require.NoError(t, got, about)
				}
				// A read of Do and DoAll has committed its claims before its work began.
				if ran && kind != 2 && (!undo || kind != 1 && onlyReads(fences)) {
					for _, f := range fences {
						model[f.Resource] = model[f.Resource].Raise(f)
					}
				}
				requireSeen(t, guard, db, map[string]fencing.Registers{"0": model["0"], "1": model["1"], "2": model["2"]})
			}
		}
	})
}

// refusalsOf returns what the refusal of each fence says. Which of several is the first is not promised: where MySQL
// has to make a row before the claims, newer writes refuse before newer reads do.
func refusalsOf(model map[string]fencing.Registers, fences []fencing.Fence, derived bool) (refusals []error) {
	for _, f := range fences {
		if err := model[f.Resource].Check(f); err != nil && !derived {
			refusals = append(refusals, err)
		}
		if err := model[f.Resource].CheckDerived(f); err != nil && (derived || len(fences) > 1) {
			refusals = append(refusals, err)
		}
	}
	return refusals
}

func onlyReads(fences []fencing.Fence) bool {
	return !slices.ContainsFunc(fences, func(f fencing.Fence) bool { return f.Mode == fencing.Write })
}

func requireSeen(t *testing.T, guard *sqlguard.Guard, db *sql.DB, want map[string]fencing.Registers) {
	t.Helper()
	for resource, registers := range want {
		seen, err := guard.Seen(t.Context(), db, resource)
		require.NoError(t, err)
		require.Equal(t, registers, seen, resource)
	}
}

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
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

func nothing(context.Context, *sql.Tx) error { return nil }

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

// The verdict on a token waits for the transaction of a newer one, on a row that
// is there already and on one that both would insert.
func TestOlderTokenWaitsForTheNewerTransaction(t *testing.T) {
	cases := []struct {
		resource         string
		present, commits bool
	}{
		{"present, commits", true, true},
		{"present, rolls back", true, false},
		{"absent, commits", false, true},
		{"absent, rolls back", false, false},
	}
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		for _, c := range cases {
			if c.present {
				require.NoError(t, guard.Claim(t.Context(), db, write(c.resource, 1)))
			}
			newer := begin(t, db)
			require.NoError(t, guard.Claim(t.Context(), newer, write(c.resource, 9)))

			verdict := make(chan error, 1)
			go func() { verdict <- guard.Do(t.Context(), db, write(c.resource, 8), nothing) }()
			awaitLockWait(t, store, db)
			select {
			case err := <-verdict:
				t.Fatalf("%s: decided beside an open transaction: %v", c.resource, err)
			default:
			}
			if c.commits {
				require.NoError(t, newer.Commit())
				require.ErrorIs(t, <-verdict, fencing.ErrStale, c.resource)
			} else {
				require.NoError(t, newer.Rollback())
				require.NoError(t, <-verdict, "what was rolled back fences nobody off")
			}
		}
	})
}

func TestReadersRunSideBySideAndBesideAWriter(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		balance := func(tx *sql.Tx) (n int) {
			require.NoError(t, tx.QueryRow(`SELECT balance FROM accounts WHERE id = 0`).Scan(&n))
			return n
		}
		// Each runs to its end while the one before is still inside.
		err := guard.Do(t.Context(), db, read("a", 5), func(_ context.Context, five *sql.Tx) error {
			return guard.Do(t.Context(), db, read("a", 7), func(_ context.Context, seven *sql.Tx) error {
				require.NoError(t, guard.Do(t.Context(), db, read("a", 4), nothing), "an older reader")
				require.ErrorIs(t, guard.Do(t.Context(), db, write("a", 6), nothing), fencing.ErrStale)
				require.NoError(t, guard.Do(t.Context(), db, write("a", 8), func(_ context.Context, tx *sql.Tx) error {
					_, err := tx.Exec(`UPDATE accounts SET balance = 100 WHERE id = 0`)
					return err
				}))
				require.Zero(t, balance(seven), "the snapshot of its check")
				require.Zero(t, balance(five))
				return nil
			})
		})
		require.NoError(t, err)
		require.ErrorIs(t, guard.Do(t.Context(), db, read("a", 7), nothing), fencing.ErrStale)
		require.NoError(t, guard.Do(t.Context(), db, read("a", 9), func(_ context.Context, tx *sql.Tx) error {
			require.Equal(t, 100, balance(tx))
			return nil
		}))
	})
}

// A reader's transaction begins after its claim; a write that commits in between
// is one that it must not be mixed up with.
func TestReaderOvertakenBetweenClaimAndTransaction(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		overtaking := beginHook{DB: db, before: func() {
			require.NoError(t, guard.Do(t.Context(), db, write("a", 6), nothing))
		}}
		err := guard.Do(t.Context(), overtaking, read("a", 5), func(context.Context, *sql.Tx) error {
			t.Error("read after a newer write")
			return nil
		})
		require.Equal(t, &fencing.StaleError{Resource: "a", Got: 5, Seen: 6}, err)
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

func TestDerivedRowIsNeverOutdated(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		require.NoError(t, guard.Do(t.Context(), db, read("a", 5), nothing))
		require.NoError(t, guard.Do(t.Context(), db, read("a", 6), nothing), "a newer reader does not matter")
		fill := begin(t, db)
		require.NoError(t, guard.Derive(t.Context(), fill, read("a", 5)))

		// A newer write waits until the fill is visible, and can drop it then.
		written := make(chan error, 1)
		go func() { written <- guard.Do(t.Context(), db, write("a", 7), nothing) }()
		awaitLockWait(t, store, db)
		require.NoError(t, fill.Commit())
		require.NoError(t, <-written)

		late := begin(t, db)
		err := guard.Derive(t.Context(), late, read("a", 6))
		require.Equal(t, &fencing.StaleError{Resource: "a", Got: 6, Seen: 7}, err)
	})
}

// Of a resource that nobody has claimed there is no row to lock: Derive makes one.
func TestDerivedRowOfAnUnseenResourceLocksToo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		fill := begin(t, db)
		require.NoError(t, guard.Derive(t.Context(), fill, read("a", 5)))
		written := make(chan error, 1)
		go func() { written <- guard.Do(t.Context(), db, write("a", 7), nothing) }()
		awaitLockWait(t, store, db)
		select {
		case err := <-written:
			t.Fatalf("written beside the fill: %v", err)
		default:
		}
		require.NoError(t, fill.Commit())
		require.NoError(t, <-written)
	})
}

func TestDoRollsBackOnErrorAndPanic(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		boom := errors.New("boom")
		spoil := func(_ context.Context, tx *sql.Tx) error {
			_, err := tx.Exec(`UPDATE accounts SET balance = -1 WHERE id = 0`)
			require.NoError(t, err)
			return boom
		}
		require.Equal(t, boom, guard.Do(t.Context(), db, write("a", 5), spoil))
		require.PanicsWithValue(t, boom, func() {
			_ = guard.Do(t.Context(), db, write("a", 5), func(ctx context.Context, tx *sql.Tx) error { panic(spoil(ctx, tx)) })
		})
		require.Equal(t, []int{0}, balances(t, db))
		require.NoError(t, guard.Do(t.Context(), db, write("a", 4), nothing), "the claim was rolled back, too")
	})
}

func TestReadTransactionsDoNotWrite(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		statements := []string{`UPDATE accounts SET balance = -1 WHERE id = 0`, `DELETE FROM accounts`}
		if store.Dialect != sqlguard.MySQL { // where DDL ends the transaction, which is an error of its own
			statements = append(statements, `CREATE TABLE others (id INT)`)
		}
		for _, statement := range statements {
			err := guard.Do(t.Context(), db, read("a", 5), func(_ context.Context, tx *sql.Tx) error {
				_, err := tx.Exec(statement)
				return err
			})
			require.Error(t, err, statement)
			require.Contains(t, strings.ToLower(err.Error()), "read", statement)
			require.Equal(t, []int{0}, balances(t, db), statement)
		}
		_, err := db.Exec(`CREATE TABLE others (id INT)`)
		require.NoError(t, err, "it was not made")
	})
}

// The row was deleted between the refusal and the question by what.
func TestRefusalStandsThoughTheRegistersAreGone(t *testing.T) {
	for _, name := range []string{"PostgreSQL", "SQLite"} { // MySQL answers in one statement
		store := servers.Store(name)
		t.Run(store.Name, func(t *testing.T) {
			db := store.Open(t)
			guard := newGuard(t, store, db)
			require.NoError(t, guard.Claim(t.Context(), db, write("a", 5)))
			err := guard.Claim(t.Context(), forgetful{db}, write("a", 4))
			require.ErrorIs(t, err, fencing.ErrStale)
		})
	}
}

// Inside its own write a claim of the resource would wait for the row that this write has locked.
func TestDoInsideDo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 2)
		limit, cancel := context.WithTimeout(t.Context(), eventLimit)
		defer cancel()
		err := guard.Do(limit, db, write("a", 5), func(ctx context.Context, tx *sql.Tx) error {
			for _, f := range []fencing.Fence{write("a", 5), write("a", 6), read("a", 5)} {
				err := guard.Do(ctx, db, f, nothing)
				require.ErrorIs(t, err, sqlguard.ErrNested, "%v", f)
				require.ErrorContains(t, err, `"a"`)
				require.ErrorIs(t, guard.Do(ctx, sqlx.NewDb(db, store.Name), f, nothing), sqlguard.ErrNested)
				require.ErrorIs(t, guard.Claim(ctx, db, f), sqlguard.ErrNested)
				require.ErrorIs(t, guard.Derive(ctx, db, f), sqlguard.ErrNested)
			}
			require.NoError(t, guard.Claim(ctx, tx, write("a", 5)), "in the same transaction")
			return updateBalance(ctx, tx, store.Dialect, 0, 50)
		})
		require.NoError(t, err, "the section itself is not harmed")
		require.Equal(t, []int{50, 0}, balances(t, db))
	})
}

func TestDoOnAnotherResourceInsideDo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		if store.Dialect == sqlguard.SQLite {
			t.Skip("one writer at a time")
		}
		makeAccounts(t, db, 2)
		require.Equal(t, errUndo, guard.Do(t.Context(), db, write("a", 5), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, 50))
			require.NoError(t, guard.Do(ctx, db, write("b", 6), func(ctx context.Context, tx *sql.Tx) error {
				return updateBalance(ctx, tx, store.Dialect, 1, 60)
			}))
			return errUndo
		}))
		require.Equal(t, []int{0, 60}, balances(t, db), "a transaction of its own")
	})
}

// A read holds no row, so what is inside it waits for nobody.
func TestDoInsideARead(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		require.NoError(t, guard.Do(t.Context(), db, read("a", 5), func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, guard.Do(ctx, db, read("a", 5), nothing))
			return guard.Do(ctx, db, write("a", 5), nothing)
		}))
	})
}

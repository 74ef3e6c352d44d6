package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

func requireSeen(t *testing.T, guard *sqlguard.Guard, db *sql.DB, want map[string]fencing.Registers) {
	t.Helper()
	for resource, registers := range want {
		seen, err := guard.Seen(t.Context(), db, resource)
		require.NoError(t, err)
		require.Equal(t, registers, seen, resource)
	}
}

func TestDoAllRaisesTheRegisterOfEachFence(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		require.NoError(t, guard.Claim(t.Context(), db, read("b", 3)), "the others have no row yet")
		fences := []fencing.Fence{write("c", 9), read("a", 5), write("b", 7)}
		require.NoError(t, guard.DoAll(t.Context(), db, fences, func(ctx context.Context, tx *sql.Tx) error {
			return updateBalance(ctx, tx, store.Dialect, 0, 1)
		}))
		reads := []fencing.Fence{read("d", 5), read("c", 10)}
		require.NoError(t, guard.DoAll(t.Context(), db, reads, func(ctx context.Context, tx *sql.Tx) error {
			balance, err := selectBalance(ctx, tx, store.Dialect, 0)
			require.Equal(t, 1, balance)
			return err
		}))
		requireSeen(t, guard, db, map[string]fencing.Registers{
			"a": {MaxRead: 5}, "b": {MaxRead: 3, MaxWrite: 7}, "c": {MaxRead: 10, MaxWrite: 9}, "d": {MaxRead: 5},
		})
	})
}

// The fence that is refused is not the first to be claimed.
func TestOneStaleFenceRefusesAll(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		require.NoError(t, guard.Claim(t.Context(), db, write("a", 1)))
		require.NoError(t, guard.Claim(t.Context(), db, write("b", 9)))
		for _, fences := range [][]fencing.Fence{
			{write("a", 5), write("b", 8)},
			{write("c", 5), write("b", 8), read("a", 5)},
			{write("new", 5), read("b", 8), read("a", 5)},
			{read("a", 5), read("b", 8)},
			{read("b", 8), read("a", 5), read("new", 8)},
		} {
			err := guard.DoAll(t.Context(), db, fences, func(context.Context, *sql.Tx) error {
				t.Error("work ran")
				return nil
			})
			require.Equal(t, &fencing.StaleError{Resource: "b", Got: 8, Seen: 9}, err, "%v", fences)
		}
		requireSeen(t, guard, db, map[string]fencing.Registers{"a": {MaxWrite: 1}, "b": {MaxWrite: 9}, "c": {}, "new": {}})
	})
}

func TestWorkOfDoAllThatFailsTakesEveryClaimBack(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		fences := []fencing.Fence{write("a", 5), read("b", 5)}
		err := guard.DoAll(t.Context(), db, fences, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, -1))
			return errUndo
		})
		require.Equal(t, errUndo, err)
		require.Equal(t, []int{0}, balances(t, db))
		requireSeen(t, guard, db, map[string]fencing.Registers{"a": {}, "b": {}})
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

// Between the claims and the snapshot a newer writer has been at one of the resources.
func TestReadersOfSeveralResourcesAreOvertaken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, _ sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		for i, overtaken := range []string{"a", "b"} {
			token := fencing.Token(10 * (i + 1))
			begun := 0
			overtaking := beginHook{DB: db, before: func() {
				if begun++; begun == 2 { // the transaction of the claims is the first
					require.NoError(t, guard.Do(t.Context(), db, write(overtaken, token+1), nothing))
				}
			}}
			for _, fences := range [][]fencing.Fence{{read("a", token), read("b", token)}} {
				require.NoError(t, guard.DoAll(t.Context(), db, fences, nothing), "the rows exist")
				err := guard.DoAll(t.Context(), overtaking, fences, func(context.Context, *sql.Tx) error {
					t.Error("read after a newer write")
					return nil
				})
				require.Equal(t, &fencing.StaleError{Resource: overtaken, Got: token, Seen: token + 1}, err)
			}
		}
	})
}

// The claims of each are in one order, so none is the victim of a deadlock, and the rows of the work are behind them.
func TestTransfersInOppositeDirections(t *testing.T) {
	t.Parallel()
	const transfers, workers = 10, 8
	onEveryServer(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 2)
		var ran atomic.Int64
		var group errgroup.Group
		for worker := range workers {
			from, to := worker%2, 1-worker%2
			group.Go(func() error {
				for i := range transfers {
					fences := []fencing.Fence{account(from, 7), account(to, 7), read(fmt.Sprint("rates/", i), 7)}
					err := guard.DoAll(t.Context(), db, fences, func(ctx context.Context, tx *sql.Tx) error {
						ran.Add(1)
						if err := add(ctx, tx, store.Dialect, from, -1); err != nil {
							return err
						}
						return add(ctx, tx, store.Dialect, to, 1)
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		require.EqualValues(t, transfers*workers, ran.Load(), "no work ran twice")
		require.Equal(t, []int{0, 0}, balances(t, db))
	})
}

// add is a step of a transfer.
func add(ctx context.Context, tx *sql.Tx, d sqlguard.Dialect, id, amount int) error {
	_, err := tx.ExecContext(ctx, numbered(d, `UPDATE accounts SET balance = balance + ? WHERE id = ?`), amount, id)
	return err
}

// A holder's connection dies while it has one claim and waits for the other.
func TestConnectionThatDiesBetweenTheClaims(t *testing.T) {
	kill := map[sqlguard.Dialect]string{
		sqlguard.PostgreSQL: `SELECT pg_terminate_backend(pid)::int FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND datname = current_database()`,
		sqlguard.MySQL: `SELECT id FROM information_schema.processlist
			WHERE db = DATABASE() AND info LIKE 'UPDATE%' AND id <> CONNECTION_ID()`,
	}
	onEveryServer(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		for _, fences := range [][]fencing.Fence{
			{write("a", 5), write("b", 5)}, {read("a", 5), write("b", 5)}, {read("a", 5), read("b", 5)},
		} {
			require.NoError(t, guard.DoAll(t.Context(), db, []fencing.Fence{write("a", 1), write("b", 1)}, nothing))
			first := begin(t, db)
			require.NoError(t, guard.Claim(t.Context(), first, write("b", 2)))
			done := make(chan error, 1)
			go func() {
				done <- guard.DoAll(t.Context(), db, fences, func(context.Context, *sql.Tx) error {
					t.Error("work ran")
					return nil
				})
			}()
			awaitLockWait(t, store, db)
			var id int
			require.NoError(t, db.QueryRow(kill[store.Dialect]).Scan(&id))
			if store.Dialect == sqlguard.MySQL {
				_, err := db.Exec(fmt.Sprint(`KILL `, id))
				require.NoError(t, err)
			}
			require.Error(t, <-done)
			require.NoError(t, guard.Claim(t.Context(), db, write("a", 2)), "nothing of the claim is left")
			require.NoError(t, first.Rollback())
			requireSeen(t, guard, db, map[string]fencing.Registers{"a": {MaxWrite: 2}, "b": {MaxWrite: 1}})
			_, err := db.Exec(`DELETE FROM fencelock_guard`)
			require.NoError(t, err)
		}
	})
}

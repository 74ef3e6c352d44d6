package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// Work that ends its transaction, goes on and returns an error is told so: what it did after the end is committed.
func TestWorkThatFailsAfterTheEndOfItsTransaction(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		all := endings(store.Dialect)
		if store.Dialect == sqlguard.SQLite {
			all = append(all, `INSERT OR ROLLBACK INTO accounts SELECT * FROM accounts`)
		}
		own := errors.New("own")
		for i, ending := range all {
			f := account(0, fencing.Token(2*i+1))
			err := guard.Do(t.Context(), db, f, func(ctx context.Context, tx *sql.Tx) error {
				failed := send(ending)(ctx, tx)
				f.Token++
				require.NoError(t, guard.Do(t.Context(), db, f, nothing), "nobody holds the row any more")
				return errors.Join(failed, updateBalance(ctx, tx, store.Dialect, 0, -1), own)
			})
			require.ErrorIs(t, err, sqlguard.ErrTransactionEnded, ending)
			require.ErrorIs(t, err, own, ending)
			require.False(t, sqlguard.IsConflict(err), ending)
		}
		err := guard.Do(t.Context(), db, account(0, 100), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(updateBalance(ctx, tx, store.Dialect, 0, 100), own)
		})
		require.ErrorIs(t, err, own)
		require.NotErrorIs(t, err, sqlguard.ErrTransactionEnded, "it was rolled back as a whole")
		require.NotEqual(t, []int{100}, balances(t, db))
	})
}

// The victim of a deadlock goes on with a statement, which MySQL and MariaDB commit by itself, and returns the deadlock
// with what came after it. It must not be run again as if nothing had been kept.
func TestWorkThatGoesOnAfterADeadlock(t *testing.T) {
	onEveryServer(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 50)
		later := func(id, balance int) func(*sql.Tx) error {
			return func(tx *sql.Tx) error { return updateBalance(t.Context(), tx, store.Dialect, id, balance) }
		}
		text := func(text string) func(*sql.Tx) error {
			return func(tx *sql.Tx) error { return send(text)(t.Context(), tx) }
		}
		for name, next := range map[string][]func(*sql.Tx) error{
			"it succeeds":              {later(49, 100)},
			"without arguments":        {text(`UPDATE accounts SET balance = 100 WHERE id = 49`)},
			"the last statement fails": {later(49, 100), text(`SELECT nothing FROM accounts`)},
			"its error is dropped": {later(49, 100), func(tx *sql.Tx) error {
				_ = send(`SELECT nothing`)(t.Context(), tx)
				return nil
			}},
			"and then it reads": {later(49, 100), text(`SELECT id FROM accounts WHERE id = 1`)},
		} {
			err := deadlock(t, store, db, guard, 1, func(tx *sql.Tx, err error) error {
				for _, statement := range next {
					err = errors.Join(err, statement(tx))
				}
				return err
			})
			kept := balances(t, db)[49] == 100
			require.Equal(t, store.Dialect == sqlguard.MySQL, kept, name)
			require.Equal(t, kept, errors.Is(err, sqlguard.ErrTransactionEnded), "%s: %v", name, err)
			require.Equal(t, !kept, sqlguard.IsConflict(err), "%s: %v", name, err)
		}
	})
}

// In this way the work is the victim twice: of the second deadlock outside of a transaction.
func TestWorkThatReturnsTwoConflictsWentOn(t *testing.T) {
	test := func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 50)
		err := deadlock(t, store, db, guard, 1, func(tx *sql.Tx, err error) error {
			require.NoError(t, updateBalance(t.Context(), tx, store.Dialect, 49, 100))
			return errors.Join(err, send(`SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213`)(t.Context(), tx))
		})
		require.ErrorIs(t, err, sqlguard.ErrTransactionEnded)
		require.Equal(t, 100, balances(t, db)[49])
	}
	onStores(t, test, "MariaDB", "MySQL")
}

// Commit and Rollback of the *sql.Tx by the work, which then returns nil or an error, with its lock or without.
func TestCommitByTheWork(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		token := fencing.Token(0)
		for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
			for _, mode := range []fencing.Mode{fencing.Write, fencing.Read} {
				for _, returned := range []error{nil, errors.New("own")} {
					for _, lost := range []bool{false, true} {
						token++
						f := fencing.Fence{Resource: "accounts/0", Token: token, Mode: mode}
						ctx, cancel := context.WithCancelCause(t.Context())
						err := guard.Do(ctx, db, f, func(ctx context.Context, tx *sql.Tx) error {
							if mode == fencing.Write {
								require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, int(token)))
							}
							require.NoError(t, end(tx))
							if lost {
								cancel(&fencing.LostError{Resource: f.Resource, Token: token, Reason: "test"})
							}
							return returned
						})
						cancel(nil)
						require.ErrorIs(t, err, sqlguard.ErrTransactionEnded, "%s, %v, %v, %t", name, f, returned, lost)
						if returned != nil {
							require.ErrorIs(t, err, returned)
						} else if lost {
							require.ErrorIs(t, err, fencing.ErrLost)
						}
						if mode == fencing.Write {
							require.Equal(t, name == "Commit", balances(t, db)[0] == int(token))
						}
					}
				}
			}
		}
	})
}

// A Commit after the end of the lock commits nothing, and nobody is told that it may have.
func TestCommitByTheWorkAfterALoss(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		for _, returned := range []error{nil, errors.New("own")} {
			ctx, cancel := context.WithCancelCause(t.Context())
			err := guard.Do(ctx, db, account(0, 5), func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, 5))
				cancel(&fencing.LostError{Resource: "accounts/0", Token: 5, Reason: "test"})
				for err := error(nil); !errors.Is(err, sql.ErrTxDone); {
					_, err = tx.ExecContext(context.Background(), `SELECT 1`)
				}
				require.Error(t, tx.Commit())
				return returned
			})
			if returned != nil {
				require.Equal(t, returned, err)
			} else {
				require.ErrorIs(t, err, fencing.ErrLost)
			}
			require.NotErrorIs(t, err, sqlguard.ErrTransactionEnded)
			require.Equal(t, []int{0}, balances(t, db))
		}
	})
}

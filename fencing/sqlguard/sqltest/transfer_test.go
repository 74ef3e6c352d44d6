package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// teller transfers between accounts of one database.
type teller struct {
	db      sqlguard.DB
	guard   *sqlguard.Guard
	dialect sqlguard.Dialect
	inside  func() // called between the two updates
}

// transfer moves an amount. Its caller holds the locks of both accounts.
func (t teller) transfer(ctx context.Context, from, to, amount int) error {
	source, err := fencing.Require(ctx, fmt.Sprint("accounts/", from))
	if err != nil {
		return err
	}
	target, err := fencing.Require(ctx, fmt.Sprint("accounts/", to))
	if err != nil {
		return err
	}
	fences := []fencing.Fence{source, target}
	return t.guard.DoAll(ctx, t.db, fences, func(ctx context.Context, tx *sql.Tx) error {
		if err := add(ctx, tx, t.dialect, from, -amount); err != nil {
			return err
		}
		t.inside()
		return add(ctx, tx, t.dialect, to, amount)
	})
}

// A transfer between two accounts: one transaction under the locks of both. A refused fence refuses all of it.
func Example_transfer() {
	db, guard, end := open(`CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER)`,
		`INSERT INTO accounts VALUES (7, 100), (8, 0)`)
	defer end()
	teller := teller{db, guard, sqlguard.SQLite, func() {}}
	under := func(fences ...fencing.Fence) context.Context { // the contexts of two leases, as their Context makes them
		ctx := context.Background()
		for _, f := range fences {
			ctx = fencing.NewContext(ctx, f)
		}
		return ctx
	}

	fmt.Println(teller.transfer(under(write("accounts/7", 34), write("accounts/8", 51)), 7, 8, 10))
	// Of these two locks one has been lost.
	fmt.Println(teller.transfer(under(write("accounts/7", 35), write("accounts/8", 50)), 7, 8, 10))
	fmt.Println(errors.Is(teller.transfer(under(write("accounts/7", 36)), 7, 8, 10), fencing.ErrMissing))
	var source, target int
	must(db.QueryRow(`SELECT balance FROM accounts WHERE id = 7`).Scan(&source))
	must(db.QueryRow(`SELECT balance FROM accounts WHERE id = 8`).Scan(&target))
	fmt.Println(source, target)
	// Output:
	// <nil>
	// fencing: stale token: "accounts/8" has seen 51, got 50
	// true
	// 90 10
}

// underLocks transfers under the locks of both accounts.
func (t teller) underLocks(
	ctx context.Context, locker *rwlock.Locker, from, to, amount int, opts ...rwlock.LockOption,
) error {
	names := []string{fmt.Sprint("accounts/", from), fmt.Sprint("accounts/", to)}
	return locker.DoAll(ctx, rwlock.Writes(names...), func(ctx context.Context) error {
		return t.transfer(ctx, from, to, amount)
	}, opts...)
}

// The holder is paused between its two updates, past the end of its leases. The next holder transfers the other way:
// only the server can let it in, because the one before sends nothing.
func TestHolderThatIsPausedInsideATransfer(t *testing.T) {
	redis := testredis.Start(t)
	limits := map[string]string{ // of the connection, where a transaction has none
		"PostgreSQL": "", "MariaDB": "?idle_write_transaction_timeout=1", "MySQL": "?wait_timeout=1",
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := servers.Store(name)
			driver, dsn := store.Database(t)
			newer, holder := sqltest.Open(t, driver, dsn), sqltest.Open(t, driver, dsn+limit)
			holder.SetMaxIdleConns(0)
			guard := newGuard(t, store, newer)
			makeAccounts(t, newer, 2)
			locker, err := rwlock.New(redis.Client(t), rwlock.WithPrefix(name), testredis.Patience())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, locker.Close()) })

			next := teller{newer, guard, store.Dialect, func() {}}
			paused := teller{stopped{holder}, guard, store.Dialect, nil}
			for inside := false; !inside; { // a server of a busy machine may find the holder idle before it is inside
				paused.inside = func() {
					inside = true
					require.NoError(t, next.underLocks(t.Context(), locker, 1, 0, 5))
				}
				err := paused.underLocks(t.Context(), locker, 0, 1, 70, rwlock.WithTTL(time.Second), rwlock.WithoutRenewal())
				require.Error(t, err)
			}
			require.Equal(t, []int{5, -5}, balances(t, newer))
		})
	}
}

// stopped is the database of a process that stands still: its transactions do not learn of the end of a lease.
type stopped struct{ *sql.DB }

func (s stopped) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return s.DB.BeginTx(context.WithoutCancel(ctx), opts)
}

// add is a step of a transfer.
func add(ctx context.Context, tx *sql.Tx, d sqlguard.Dialect, id, amount int) error {
	_, err := tx.ExecContext(ctx, numbered(d, `UPDATE accounts SET balance = balance + ? WHERE id = ?`), amount, id)
	return err
}

// The claims of each are in one order, so none is the victim of a deadlock, and the rows of the work are behind them.
func TestTransfersInOppositeDirections(t *testing.T) {
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

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// numbered puts a dialect's parameters in the place of question marks.
func numbered(d sqlguard.Dialect, text string) string {
	if d != sqlguard.PostgreSQL {
		return text
	}
	for _, number := range []string{"$1", "$2", "$3", "$4"} {
		text = strings.Replace(text, "?", number, 1)
	}
	return text
}

func selectBalance(ctx context.Context, tx *sql.Tx, d sqlguard.Dialect, id int) (balance int, err error) {
	err = tx.QueryRowContext(ctx, numbered(d, `SELECT balance FROM accounts WHERE id = ?`), id).Scan(&balance)
	return balance, err
}

func updateBalance(ctx context.Context, tx *sql.Tx, d sqlguard.Dialect, id, balance int) error {
	_, err := tx.ExecContext(ctx, numbered(d, `UPDATE accounts SET balance = ? WHERE id = ?`), balance, id)
	return err
}

type work = func(context.Context, *sql.Tx) error

// bank runs work on account 0 in one transaction.
type bank func(ctx context.Context, db *sql.DB, f fencing.Fence, inside work) error

func unguarded(ctx context.Context, db *sql.DB, _ fencing.Fence, inside work) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := inside(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// guarded goes through the guard table.
func guarded(guard *sqlguard.Guard) bank {
	return func(ctx context.Context, db *sql.DB, f fencing.Fence, inside work) error {
		return guard.Do(ctx, db, f, inside)
	}
}

// fenced keeps the token in the account's own row, and raises it before the work.
func fenced(d sqlguard.Dialect) bank {
	return func(ctx context.Context, db *sql.DB, f fencing.Fence, inside work) error {
		return unguarded(ctx, db, f, func(ctx context.Context, tx *sql.Tx) error {
			claim := `UPDATE accounts SET fence = ? WHERE id = 0 AND fence <= ?`
			if d == sqlguard.MySQL {
				claim = strings.Replace(claim, "?", "LAST_INSERT_ID(?)", 1)
			}
			result, err := tx.ExecContext(ctx, numbered(d, claim), f.Token, f.Token)
			if err != nil {
				return err
			}
			if err := d.CheckUpdate(ctx, tx, f, result, textsOf(d).lookup, 0); err != nil {
				return err
			}
			return inside(ctx, tx)
		})
	}
}

// makeAccounts makes accounts 0 to n-1 with balance and fence 0.
func makeAccounts(tb testing.TB, db *sql.DB, n int) {
	tb.Helper()
	_, err := db.Exec(`CREATE TABLE accounts (
		id BIGINT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL)`)
	require.NoError(tb, err)
	for id := range n {
		_, err := db.Exec(fmt.Sprintf(`INSERT INTO accounts VALUES (%d, 0, 0)`, id))
		require.NoError(tb, err)
	}
}

func balances(tb testing.TB, db *sql.DB) (all []int) {
	tb.Helper()
	rows, err := db.Query(`SELECT balance FROM accounts ORDER BY id`)
	require.NoError(tb, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var balance int
		require.NoError(tb, rows.Scan(&balance))
		all = append(all, balance)
	}
	require.NoError(tb, rows.Err())
	return all
}

// Holders that no lock excludes: each takes the next token, reads the balance, and writes one more in a transaction of
// its own, as if it had been paused in between. No increment is lost that was accepted.
func TestBalances(t *testing.T) {
	for _, store := range servers.Stores() {
		guard, err := sqlguard.New(store.Dialect)
		require.NoError(t, err)
		for name, b := range map[string]bank{
			"guard table": guarded(guard), "fence column": fenced(store.Dialect), "no guard": unguarded,
		} {
			t.Run(store.Name+"/"+name, func(t *testing.T) {
				accepted, stored := count(t, store, b)
				if name == "no guard" {
					require.Less(t, stored, accepted, "or the runs with a guard prove nothing")
					return
				}
				require.Equal(t, accepted, stored)
				require.Less(t, accepted, holders*sessions, "nobody was overtaken")
			})
		}
	}
}

const (
	holders  = 8
	sessions = 20 // of each
)

// count returns how many increments were accepted, and the balance. The first sessions of all holders overlap for sure.
func count(t *testing.T, store sqltest.Store, b bank) (accepted, stored int) {
	t.Helper()
	db := store.Open(t)
	newGuard(t, store, db)
	makeAccounts(t, db, 1)
	var token, increments atomic.Int64
	var first sync.WaitGroup
	first.Add(holders)
	session := func(ctx context.Context, begun func()) error {
		f, balance := account(0, fencing.Token(token.Add(1))), 0
		err := b(ctx, db, f, func(ctx context.Context, tx *sql.Tx) (err error) {
			balance, err = selectBalance(ctx, tx, store.Dialect, 0)
			return err
		})
		begun()
		if err == nil {
			err = b(ctx, db, f, func(ctx context.Context, tx *sql.Tx) error {
				return updateBalance(ctx, tx, store.Dialect, 0, balance+1)
			})
		}
		if err == nil {
			increments.Add(1)
		}
		return err
	}
	group, ctx := errgroup.WithContext(t.Context())
	for range holders {
		group.Go(func() error {
			begun := func() { first.Done(); first.Wait() }
			for range sessions {
				if err := session(ctx, begun); err != nil && !errors.Is(err, fencing.ErrStale) {
					return err
				}
				begun = func() {}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	return int(increments.Load()), balances(t, db)[0]
}

// Benchmark is one transaction that updates a row, or selects it, with each guard and without, on a server of this
// machine that flushes nothing: what remains is the guard's own cost at its most visible.
func Benchmark(b *testing.B) {
	for _, store := range servers.Stores() {
		guard, err := sqlguard.New(store.Dialect)
		require.NoError(b, err)
		set := func(ctx context.Context, tx *sql.Tx) error { return updateBalance(ctx, tx, store.Dialect, 0, 1) }
		get := func(ctx context.Context, tx *sql.Tx) error {
			_, err := selectBalance(ctx, tx, store.Dialect, 0)
			return err
		}
		for _, c := range []struct {
			name   string
			bank   bank
			mode   fencing.Mode
			inside func(fencing.Token) work
		}{
			{"write/unguarded", unguarded, fencing.Write, func(fencing.Token) work { return set }},
			{"write/guard table", guarded(guard), fencing.Write, func(fencing.Token) work { return set }},
			{"write/fence column", unguarded, fencing.Write, func(token fencing.Token) work {
				return func(_ context.Context, tx *sql.Tx) error { return update(b, store.Dialect, tx, 0, int(token), token) }
			}},
			{"read/unguarded", unguarded, fencing.Read, func(fencing.Token) work { return get }},
			{"read/guard table", guarded(guard), fencing.Read, func(fencing.Token) work { return get }},
		} {
			b.Run(store.Name+"/"+c.name, func(b *testing.B) {
				db := store.Open(b)
				newGuard(b, store, db)
				makeAccounts(b, db, 1)
				f := fencing.Fence{Resource: "accounts/0", Token: 1, Mode: c.mode}
				for b.Loop() {
					f.Token++
					require.NoError(b, c.bank(b.Context(), db, f, c.inside(f.Token)))
				}
			})
		}
	}
}

// servers is shared by all tests of this run: starting one takes seconds.
var servers sqltest.Servers

func TestMain(m *testing.M) {
	testredis.Together()
	goleak.VerifyTestMain(suite{m})
}

type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	if err := servers.Close(); err != nil {
		panic(err)
	}
	return code
}

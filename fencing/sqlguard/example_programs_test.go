package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// A write in a transaction of the guard. The context that locker.Do gives its work has the fence.
func ExampleGuard_Do() {
	db := sql.OpenDB(&bank{balance: 100}) // a program has sql.Open("sqlite", "bank.db")
	defer db.Close()
	guard, err := sqlguard.New(sqlguard.SQLite)
	if err != nil {
		panic(err)
	}
	if err := guard.Create(context.Background(), db); err != nil { // once, as a migration
		panic(err)
	}
	deposit := func(ctx context.Context, amount int) error {
		fence, err := fencing.Require(ctx, "account:42")
		if err != nil {
			return err
		}
		return guard.Do(ctx, db, fence, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance + ?1 WHERE id = 42`, amount)
			return err
		})
	}

	fmt.Println(deposit(lockedWith(34), 10))
	fmt.Println(deposit(lockedWith(33), 20)) // an older holder, which was paused
	fmt.Println(deposit(context.Background(), 30))
	var balance int
	fmt.Println(db.QueryRow(`SELECT balance FROM accounts WHERE id = 42`).Scan(&balance), balance)
	// Output:
	// <nil>
	// fencing: stale token: "account:42" has seen 34, got 33
	// fencing: no token for "account:42"
	// <nil> 110
}

// The token in the row itself, in the column fence. An update that changed no row is judged.
func ExampleDialect_CheckUpdate() {
	db := sql.OpenDB(&bank{balance: 100})
	defer db.Close()
	set := func(ctx context.Context, id, balance int) error {
		fence, err := fencing.Require(ctx, "account:42")
		if err != nil {
			return err
		}
		result, err := db.ExecContext(ctx,
			`UPDATE accounts SET balance = ?1, fence = ?2 WHERE id = ?3 AND fence <= ?2`, balance, fence.Token, id)
		if err != nil {
			return err
		}
		return sqlguard.SQLite.CheckUpdate(ctx, db, fence, result, `SELECT fence FROM accounts WHERE id = ?1`, id)
	}

	fmt.Println(set(lockedWith(34), 42, 90))
	fmt.Println(set(lockedWith(33), 42, 80)) // an older holder, which was paused
	fmt.Println(errors.Is(set(lockedWith(34), 7, 70), sqlguard.ErrNoRow))
	// Output:
	// <nil>
	// fencing: stale token: "account:42" has seen 34, got 33
	// true
}

// lockedWith is the context of a lease on account:42 that has this token.
func lockedWith(token fencing.Token) context.Context {
	return fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "account:42", Token: token, Mode: fencing.Write})
}

// bank stands for a database and its driver, so that the examples need none. It has account 42 and knows the statements
// above.
type bank struct {
	balance, fence int64 // of the row
	guarded        int64 // of the guard table: the newest token that has written
}

func (b *bank) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	switch {
	case strings.HasPrefix(query, `INSERT INTO "fencelock_guard"`): // resource, token
		if token := args[1].Value.(int64); token >= b.guarded {
			b.guarded = token
			return driver.RowsAffected(1), nil
		}
		return driver.RowsAffected(0), nil
	case strings.HasPrefix(query, "UPDATE accounts SET balance = balance + ?1"): // amount
		b.balance += args[0].Value.(int64)
		return driver.RowsAffected(1), nil
	case strings.HasPrefix(query, "UPDATE accounts SET balance = ?1, fence"): // balance, fence, id
		if token := args[1].Value.(int64); args[2].Value == int64(42) && token >= b.fence {
			b.balance, b.fence = args[0].Value.(int64), token
			return driver.RowsAffected(1), nil
		}
		return driver.RowsAffected(0), nil
	default: // CREATE TABLE, SAVEPOINT and RELEASE
		return driver.RowsAffected(0), nil
	}
}

func (b *bank) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	switch {
	case strings.HasPrefix(query, "SELECT max_write, max_read"):
		return &answer{[]driver.Value{b.guarded, int64(0)}, 1}, nil
	case strings.HasPrefix(query, "SELECT balance"):
		return &answer{[]driver.Value{b.balance}, 1}, nil
	case args[0].Value == int64(42): // SELECT fence
		return &answer{[]driver.Value{b.fence}, 1}, nil
	default:
		return &answer{[]driver.Value{nil}, 0}, nil
	}
}

func (b *bank) Connect(context.Context) (driver.Conn, error) { return b, nil }
func (b *bank) Driver() driver.Driver                        { return nil }
func (b *bank) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (b *bank) Begin() (driver.Tx, error)                    { return b, nil }
func (b *bank) Commit() error                                { return nil }
func (b *bank) Rollback() error                              { return nil }
func (b *bank) Close() error                                 { return nil }

// answer is at most one row.
type answer struct {
	row  []driver.Value
	left int
}

func (a *answer) Columns() []string { return make([]string, len(a.row)) }
func (a *answer) Close() error      { return nil }

func (a *answer) Next(row []driver.Value) error {
	if a.left--; a.left < 0 {
		return io.EOF
	}
	copy(row, a.row)
	return nil
}

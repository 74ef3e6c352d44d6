package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
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

// guarded goes through the guard table.
type guarded struct {
	guard   *sqlguard.Guard
	dialect sqlguard.Dialect
}

func (b guarded) read(ctx context.Context, db *sql.DB, id int, f fencing.Fence) (balance int, err error) {
	err = b.guard.Do(ctx, db, f, func(ctx context.Context, tx *sql.Tx) (err error) {
		balance, err = selectBalance(ctx, tx, b.dialect, id)
		return err
	})
	return balance, err
}

func (b guarded) write(ctx context.Context, db *sql.DB, id, balance int, f fencing.Fence) error {
	return b.guard.Do(ctx, db, f, func(ctx context.Context, tx *sql.Tx) error {
		return updateBalance(ctx, tx, b.dialect, id, balance)
	})
}

// unguarded is the same without the guard.
type unguarded struct{ dialect sqlguard.Dialect }

func (b unguarded) read(ctx context.Context, db *sql.DB, id int, _ fencing.Fence) (balance int, err error) {
	err = transact(ctx, db, func(tx *sql.Tx) (err error) {
		balance, err = selectBalance(ctx, tx, b.dialect, id)
		return err
	})
	return balance, err
}

func (b unguarded) write(ctx context.Context, db *sql.DB, id, balance int, _ fencing.Fence) error {
	return transact(ctx, db, func(tx *sql.Tx) error {
		return updateBalance(ctx, tx, b.dialect, id, balance)
	})
}

func transact(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// fenced keeps the token in the account's own row.
type fenced struct{ dialect sqlguard.Dialect }

func (b fenced) read(ctx context.Context, db *sql.DB, id int, f fencing.Fence) (balance int, err error) {
	err = transact(ctx, db, func(tx *sql.Tx) error {
		// Claim before the first read.
		claim := numbered(b.dialect, `UPDATE accounts SET fence = `+b.token()+` WHERE id = ? AND fence <= ?`)
		if err := b.update(ctx, tx, id, f, claim, f.Token, id, f.Token); err != nil {
			return err
		}
		balance, err = selectBalance(ctx, tx, b.dialect, id)
		return err
	})
	return balance, err
}

func (b fenced) write(ctx context.Context, db *sql.DB, id, balance int, f fencing.Fence) error {
	return transact(ctx, db, func(tx *sql.Tx) error {
		text := numbered(b.dialect, `UPDATE accounts SET balance = ?, fence = `+b.token()+` WHERE id = ? AND fence <= ?`)
		return b.update(ctx, tx, id, f, text, balance, f.Token, id, f.Token)
	})
}

// token is the parameter of the token that a statement writes.
func (b fenced) token() string {
	if b.dialect == sqlguard.MySQL {
		return "LAST_INSERT_ID(?)"
	}
	return "?"
}

func (b fenced) update(ctx context.Context, tx *sql.Tx, id int, f fencing.Fence, text string, args ...any) error {
	result, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	lookup := numbered(b.dialect, `SELECT fence FROM accounts WHERE id = ?`)
	return b.dialect.CheckUpdate(ctx, tx, f, result, lookup, id)
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

// Package bank has what sqlc writes for query.sql with the engine pgx/v5, in the same shape and by hand.
package bank

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DBTX runs statements: a pool, a connection or a transaction of pgx.
type DBTX interface {
	Exec(context.Context, string, ...interface{}) (pgconn.CommandTag, error)
	Query(context.Context, string, ...interface{}) (pgx.Rows, error)
	QueryRow(context.Context, string, ...interface{}) pgx.Row
}

// New returns the queries over db.
func New(db DBTX) *Queries { return &Queries{db: db} }

// Queries are the statements of query.sql.
type Queries struct{ db DBTX }

// WithTx returns the queries over a transaction.
func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{db: tx} }

const addToBalance = `-- name: AddToBalance :execrows
UPDATE accounts SET balance = balance + $1 WHERE id = $2
`

// AddToBalanceParams are the parameters of AddToBalance.
type AddToBalanceParams struct {
	Balance int64
	ID      int64
}

// AddToBalance returns the number of accounts.
func (q *Queries) AddToBalance(ctx context.Context, arg AddToBalanceParams) (int64, error) {
	result, err := q.db.Exec(ctx, addToBalance, arg.Balance, arg.ID)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected(), nil
}

const balance = `-- name: Balance :one
SELECT balance FROM accounts WHERE id = $1
`

// Balance returns the balance of an account.
func (q *Queries) Balance(ctx context.Context, id int64) (int64, error) {
	row := q.db.QueryRow(ctx, balance, id)
	var balance int64
	err := row.Scan(&balance)
	return balance, err
}

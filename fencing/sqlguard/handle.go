package sqlguard

import (
	"context"
	"database/sql"
)

// Tx runs statements: *sql.Tx, *sql.Conn, *sql.DB, their counterparts in sqlx,
// and any of these over pgx's stdlib driver.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// DB begins transactions, too: *sql.DB, *sql.Conn, *sqlx.DB, *sqlx.Conn.
type DB interface {
	Tx
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
)

// Tx runs statements: *sql.Tx, *sql.Conn, *sql.DB, their counterparts in sqlx, and any of these over pgx's stdlib
// driver. A handle of bun is refused with [ErrOption]: it rewrites the placeholders. Use the handle inside it, such as
// tx.Tx.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// DB begins transactions, too: *sql.DB, *sql.Conn, *sqlx.DB, *sqlx.Conn.
type DB interface {
	Tx
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// refuseRewriting returns an error for a handle that changes a statement before it sends it. The handles of bun put the
// arguments into the text, and count from ?0: they would fail with an error that does not name the cause.
func refuseRewriting(handle Tx) error {
	kind := reflect.TypeOf(handle)
	if kind != nil && kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if kind != nil && kind.PkgPath() == "github.com/uptrace/bun" {
		return fmt.Errorf("%w: a %v rewrites statements, use the handle of database/sql inside it", ErrOption, kind)
	}
	return nil
}

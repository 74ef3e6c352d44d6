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

// session is a Tx as a Session.
type session struct{ Tx }

func (s session) QueryRowContext(ctx context.Context, query string, args ...any) Row {
	return s.Tx.QueryRowContext(ctx, query, args...)
}

// MayBeIn is false for a pool, which takes another connection, and for another transaction. A *sql.Conn may be the
// connection of the transaction, and a type of another package may wrap it.
func (s session) MayBeIn(tx Transaction) bool {
	switch handle := s.Tx.(type) {
	case *sql.Tx:
		return tx == transaction{handle}
	case interface {
		Conn(ctx context.Context) (*sql.Conn, error)
	}:
		return false
	default:
		return true
	}
}

// transaction is a *sql.Tx as a Transaction. Its context was given to BeginTx.
type transaction struct{ *sql.Tx }

func (t transaction) QueryRowContext(ctx context.Context, query string, args ...any) Row {
	return t.Tx.QueryRowContext(ctx, query, args...)
}

func (t transaction) MayBeIn(tx Transaction) bool { return tx == t }

func (t transaction) Commit(context.Context) error { return t.Tx.Commit() }

func (t transaction) Rollback(context.Context) error { return t.Tx.Rollback() }

// database is a DB as a Database.
type database struct {
	session
	db      DB
	dialect Dialect
}

func (d database) Begin(ctx context.Context, readOnly bool) (Transaction, error) {
	tx, err := d.db.BeginTx(ctx, d.options(readOnly))
	return transaction{tx}, err
}

// options leaves SQLite's isolation at its default: it is always serializable, its drivers support no other level, and
// some refuse an explicit one.
func (d database) options(readOnly bool) *sql.TxOptions {
	switch {
	case d.dialect == SQLite:
		return &sql.TxOptions{ReadOnly: readOnly}
	case readOnly:
		return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	default:
		return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
}

// RefuseOpen probes in PostgreSQL. The others refuse to begin a transaction inside another one; for a read, an empty
// one begins before the claim, which would otherwise become a part of the open transaction.
func (d database) RefuseOpen(ctx context.Context, reading bool) error {
	_, isConn := d.db.(interface{ Raw(func(any) error) error })
	switch {
	case !isConn:
		return nil
	case d.dialect == PostgreSQL:
		return d.probe(ctx)
	case !reading:
		return nil
	}
	tx, err := d.db.BeginTx(ctx, d.options(true))
	if err != nil {
		return beginError(d.dialect, err)
	}
	return tx.Rollback()
}

const (
	setProbe    = `SELECT set_config('fencelock.probe', $1, true)`
	selectProbe = `SELECT coalesce(current_setting('fencelock.probe', true), '')`
)

// probe tests for a transaction in PostgreSQL by a setting that is local to the transaction: outside of a transaction
// the setting ends with its own statement.
func (d database) probe(ctx context.Context) error {
	var set, found string
	err := d.QueryRowContext(ctx, setProbe, newMark(d.dialect)).Scan(&set)
	if err == nil {
		err = d.QueryRowContext(ctx, selectProbe).Scan(&found)
	}
	switch {
	case err != nil:
		return fmt.Errorf("sqlguard: begin: %w", err)
	case found == set:
		return ErrInTransaction
	}
	return nil
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

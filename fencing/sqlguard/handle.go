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

// pool takes any of its connections for each statement: *sql.DB, *sqlx.DB.
type pool interface {
	DB
	Conn(ctx context.Context) (*sql.Conn, error)
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
		t, ours := tx.(*transaction)
		return ours && handle == t.tx
	case pool:
		return false
	default:
		return true
	}
}

// unbound returns the pool, or nil: the statements of another handle may be part of the caller's transaction.
func (s session) unbound() DB {
	p, _ := s.Tx.(pool)
	return p
}

// unbound returns what handle begins transactions with, if a statement of handle has to be one. It is nil outside of
// MySQL, where a statement that is in no transaction commits by itself. In MySQL autocommit=0 leaves that to somebody,
// and completion_type=1 has each COMMIT begin another transaction, which whatever the pool sends next is a part of.
func unbound(d Dialect, handle Session) DB {
	if d != MySQL {
		return nil
	}
	if h, ok := handle.(interface{ unbound() DB }); ok {
		return h.unbound()
	}
	return nil
}

// apart calls run with a transaction of its own, and commits it. Its START TRANSACTION commits first what another one
// has left open on the connection.
func apart(ctx context.Context, db DB, run func(Session) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return withCause(ctx, fmt.Errorf("sqlguard: begin: %w", err))
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := run(session{tx}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return withCause(ctx, fmt.Errorf("sqlguard: commit: %w", err))
	}
	return nil
}

// database is a DB as a Database.
type database struct {
	session
	db      DB
	dialect Dialect
}

// unbound is the handle also if it is a connection: Do asks before whether that is in a transaction.
func (d database) unbound() DB { return d.db }

func (d database) Begin(ctx context.Context, readOnly bool) (Transaction, error) {
	return beginUnder(ctx, func(ctx context.Context) (*sql.Tx, error) { return d.begin(ctx, readOnly) })
}

func (d database) begin(ctx context.Context, readOnly bool) (*sql.Tx, error) {
	tx, err := d.db.BeginTx(ctx, d.options(readOnly))
	if _, isPool := d.db.(pool); isPool && d.dialect == MySQL && sqlState(err) == activeTransaction {
		return d.beginAnew(ctx, readOnly)
	}
	return tx, err
}

// beginAnew begins a transaction where the pool's connections may be in one already, for the reasons that unbound
// names: MySQL sets no isolation level inside of a transaction.
func (d database) beginAnew(ctx context.Context, readOnly bool) (*sql.Tx, error) {
	level, mode := "READ COMMITTED", ""
	if readOnly {
		level, mode = "REPEATABLE READ", " READ ONLY"
	}
	tx, err := d.db.BeginTx(ctx, nil) // without a level it commits the former one first
	for _, text := range []string{
		"COMMIT AND NO CHAIN", "SET TRANSACTION ISOLATION LEVEL " + level, "START TRANSACTION" + mode,
	} {
		if err != nil {
			break
		}
		if _, err = tx.ExecContext(ctx, text); err != nil {
			_ = tx.Rollback()
		}
	}
	return tx, err
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

package pgxguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// Tx runs statements: a pgx.Tx, *pgx.Conn, *pgxpool.Conn or *pgxpool.Pool.
type Tx interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

// DB begins transactions, too: *pgxpool.Pool, *pgxpool.Conn, *pgx.Conn.
type DB interface {
	Tx
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// connection returns the connection of a handle, nil for a pool, which takes another one with each call. known is false
// for a handle of another package.
func connection(handle Tx) (conn *pgx.Conn, known bool) {
	switch handle := handle.(type) {
	case *pgx.Conn:
		return handle, true
	case *pgxpool.Pool:
		return nil, true
	case interface{ Conn() *pgx.Conn }: // *pgxpool.Conn, pgx.Tx
		return handle.Conn(), true
	default:
		return nil, false
	}
}

// session is a Tx as a sqlguard.Session.
type session struct{ Tx }

func (s session) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := s.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

func (s session) QueryRowContext(ctx context.Context, query string, args ...any) sqlguard.Row {
	return s.QueryRow(ctx, query, args...)
}

// MayBeIn compares the connections: a pgx.Tx inside another one is a savepoint of the same transaction.
func (s session) MayBeIn(tx sqlguard.Transaction) bool {
	conn, known := connection(s.Tx)
	t, ours := tx.(*transaction)
	return !known || ours && conn == t.tx.Conn()
}

// database is a DB as a sqlguard.Database.
type database struct {
	session
	db DB
}

func (d database) Begin(ctx context.Context, readOnly bool) (sqlguard.Transaction, error) {
	opts := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	if readOnly {
		opts = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	}
	tx, err := d.db.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	t := &transaction{tx: tx, aborted: make(chan struct{})}
	t.stopWatching = context.AfterFunc(ctx, t.abort)
	return t, nil
}

// RefuseOpen asks the connection, which knows the state from the server's last answer.
func (d database) RefuseOpen(context.Context, bool) error {
	conn, _ := connection(d.db)
	if conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		return sqlguard.ErrInTransaction
	}
	return nil
}

// transaction is a pgx.Tx as a sqlguard.Transaction.
type transaction struct {
	tx pgx.Tx

	stopWatching func() bool // keeps abort from being called, once
	unwatched    bool
	aborting     atomic.Bool
	aborted      chan struct{} // closed when abort is over
}

// abort ends the transaction with its context, on a goroutine of its own. The work may be using the transaction, which
// is not for two goroutines, so abort closes what is below it: this ends a call under way, and the server rolls back.
func (t *transaction) abort() {
	defer close(t.aborted)
	t.aborting.Store(true)
	if conn := t.tx.Conn(); conn != nil { // nil in a mock
		_ = conn.PgConn().Conn().Close()
	}
}

// unwatch returns when the context cannot close the connection any more: a pool may give it to another caller next. It
// reports whether the context has not done so.
func (t *transaction) unwatch() bool {
	if !t.unwatched {
		t.unwatched = true
		if !stopped(t.stopWatching) {
			<-t.aborted
		}
	}
	return !t.aborting.Load()
}

// stopped calls the function of context.AfterFunc, and returns its result. The contexts of some web frameworks panic
// once their request is over, and package context asks them after it has stopped the call. Package ctxend of the root
// module does the same, but this module imports nothing internal: it may be built with a later root module.
func stopped(stop func() bool) (before bool) {
	defer func() { _ = recover() }()
	before = true
	return stop()
}

// guarded has no value where that of such a context panics.
type guarded struct{ context.Context }

func (g guarded) Value(key any) (value any) {
	defer func() { _ = recover() }()
	return g.Context.Value(key)
}

// worked is the transaction that the work gets. A Commit or Rollback by the work gives the connection back to its pool,
// and from then on the end of the context must not close it.
type worked struct {
	pgx.Tx
	transaction *transaction
}

func (w worked) Commit(ctx context.Context) error {
	w.transaction.unwatch()
	return w.Tx.Commit(ctx)
}

func (w worked) Rollback(ctx context.Context) error {
	w.transaction.unwatch()
	return w.Tx.Rollback(ctx)
}

// ended adds to an error that the transaction has ended, if it has.
func (t *transaction) ended(err error) error {
	if err != nil && t.aborting.Load() {
		return fmt.Errorf("%w: %w", sql.ErrTxDone, err)
	}
	return err
}

// closed is ended for the guard's own statements: the work may have ended the transaction. Its Commit after the end of
// the context closes the transaction too, and commits nothing.
func (t *transaction) closed(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) && !t.aborting.Load() {
		return fmt.Errorf("%w: %w", sqlguard.ErrTransactionEnded, err)
	}
	return t.ended(err)
}

func (t *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := session{t.tx}.ExecContext(ctx, query, args...)
	return result, t.closed(err)
}

func (t *transaction) QueryRowContext(ctx context.Context, query string, args ...any) sqlguard.Row {
	return row{t.tx.QueryRow(ctx, query, args...), t}
}

// row is a row of a transaction.
type row struct {
	pgx.Row
	tx *transaction
}

func (r row) Scan(dest ...any) error { return r.tx.closed(r.Row.Scan(dest...)) }

func (t *transaction) MayBeIn(tx sqlguard.Transaction) bool { return session{t.tx}.MayBeIn(tx) }

// Commit commits nothing after the end of the context.
func (t *transaction) Commit(ctx context.Context) error {
	if !t.unwatch() {
		return sql.ErrTxDone
	}
	return t.closed(t.tx.Commit(ctx))
}

// rollbackLimit bounds the wait for a server that does not answer. The connection is closed then.
const rollbackLimit = 5 * time.Second

func (t *transaction) Rollback(ctx context.Context) error {
	t.unwatch()
	ctx, cancel := context.WithTimeout(guarded{context.WithoutCancel(ctx)}, rollbackLimit)
	defer cancel()
	return t.tx.Rollback(ctx)
}

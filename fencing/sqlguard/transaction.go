package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/internal/ctxend"
)

// transaction is a *sql.Tx as a Transaction.
//
// [sql.ErrTxDone] is one error for two causes: the work has called Commit or Rollback, or the context has ended. After
// the first the changes may be committed, after the second they are rolled back. So the context of Do does not end the
// transaction itself. When it ends, watch looks whether the transaction is over by then, and ends it after that.
type transaction struct {
	tx  *sql.Tx
	end context.CancelFunc // rolls tx back unless it is over

	stopWatching func() bool // keeps watch from being called, once
	unwatched    bool
	left         bool          // watch is never called
	watched      chan struct{} // closed by watch at its end
	overBefore   bool          // what watch has seen, to be read after that
}

// beginUnder begins a transaction that ends with ctx.
func beginUnder(ctx context.Context, begin func(context.Context) (*sql.Tx, error)) (Transaction, error) {
	within, end := context.WithCancel(context.WithoutCancel(ctx))
	abandon := context.AfterFunc(ctx, end)
	tx, err := begin(within)
	begun := ctxend.Stop(abandon)
	if err != nil || !begun {
		if err == nil {
			_ = tx.Rollback()
		}
		end()
		if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = ctx.Err() // within ends by no deadline
		}
		return nil, err
	}
	t := &transaction{tx: tx, end: end, watched: make(chan struct{})}
	t.stopWatching = context.AfterFunc(ctx, t.watch)
	return t, nil
}

func (t *transaction) watch() {
	t.overBefore = t.isOver()
	t.end()
	close(t.watched)
}

// isOver sends nothing: database/sql refuses the statement of no database, and before that any statement of a
// transaction that is over.
func (t *transaction) isOver() bool {
	_, err := t.tx.Stmt(new(sql.Stmt)).Exec()
	return errors.Is(err, sql.ErrTxDone)
}

// unwatch keeps the context from ending the transaction. It reports whether that is over already, by the work.
func (t *transaction) unwatch() bool {
	if !t.unwatched {
		t.unwatched, t.left = true, ctxend.Stop(t.stopWatching)
	}
	if t.left {
		return t.isOver()
	}
	<-t.watched
	return t.overBefore
}

// ended adds to an error of a transaction that is over that the work has ended it, if it has. Once a context has ended,
// database/sql does not look whether the transaction is over.
func (t *transaction) ended(err error) error {
	over := errors.Is(err, sql.ErrTxDone) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if over && t.unwatch() {
		return fmt.Errorf("%w: %w", ErrTransactionEnded, err)
	}
	return err
}

func (t *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := t.tx.ExecContext(ctx, query, args...)
	return result, t.ended(err)
}

func (t *transaction) QueryRowContext(ctx context.Context, query string, args ...any) Row {
	return row{t.tx.QueryRowContext(ctx, query, args...), t}
}

// row is a row of a transaction.
type row struct {
	*sql.Row
	tx *transaction
}

func (r row) Scan(dest ...any) error { return r.tx.ended(r.Row.Scan(dest...)) }

func (t *transaction) MayBeIn(tx Transaction) bool { return tx == t }

func (t *transaction) Commit(context.Context) error {
	if t.unwatch() {
		return fmt.Errorf("%w: %w", ErrTransactionEnded, sql.ErrTxDone)
	}
	return t.tx.Commit()
}

func (t *transaction) Rollback(context.Context) error {
	defer t.end()
	ctxend.Stop(t.stopWatching)
	return t.tx.Rollback()
}

package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
)

// transact runs check and then work in one transaction.
func (g *Guard) transact(ctx context.Context, db DB, opts *sql.TxOptions, check, work func(*sql.Tx) error) error {
	tx, err := g.begin(ctx, db, opts, check)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := work(tx); err != nil {
		return err
	}
	if err := g.requireUnbroken(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlguard: commit: %w", err)
	}
	return nil
}

// begin returns a transaction that check has passed. A conflict ended the transaction that it was in, so the next try
// begins another.
func (g *Guard) begin(ctx context.Context, db DB, opts *sql.TxOptions, check func(*sql.Tx) error) (*sql.Tx, error) {
	var tx *sql.Tx
	err := retryConflicts(ctx, func() (err error) {
		if tx, err = db.BeginTx(ctx, opts); err != nil {
			return fmt.Errorf("sqlguard: begin: %w", err)
		}
		if err = check(tx); err == nil {
			err = g.mark(ctx, tx)
		}
		if err != nil {
			_ = tx.Rollback()
		}
		return err
	})
	return tx, err
}

// MySQL goes on after a deadlock or DDL as if nothing had happened: it has ended the transaction, and each further
// statement is one of its own. A savepoint lives exactly as long as its transaction, so at the end it tells whether
// that is still the one which was checked. PostgreSQL and SQLite refuse to commit what was rolled back.
const (
	setMark     = "SAVEPOINT fencelock_guard"
	releaseMark = "RELEASE SAVEPOINT fencelock_guard"

	noSuchSavepoint = "42000" // the SQLSTATE of MySQL's error 1305
)

func (g *Guard) mark(ctx context.Context, tx *sql.Tx) error {
	if g.dialect != MySQL {
		return nil
	}
	if _, err := tx.ExecContext(ctx, setMark); err != nil {
		return fmt.Errorf("sqlguard: begin: %w", err)
	}
	return nil
}

// requireUnbroken returns an error unless tx is the transaction that was marked.
func (g *Guard) requireUnbroken(ctx context.Context, tx *sql.Tx) error {
	if g.dialect != MySQL {
		return nil
	}
	_, err := tx.ExecContext(ctx, releaseMark)
	switch {
	case err == nil:
		return nil
	case sqlState(err) == noSuchSavepoint:
		return fmt.Errorf("%w: %w", ErrTransactionEnded, err)
	default:
		return fmt.Errorf("sqlguard: commit: %w", err)
	}
}

package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
)

// transact runs check and then work in one transaction.
func (g *Guard) transact(ctx context.Context, db DB, opts *sql.TxOptions, check, work func(marked) error) error {
	tx, err := g.begin(ctx, db, opts, check)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := work(tx); err != nil {
		return err
	}
	if err := g.requireMark(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlguard: commit: %w", err)
	}
	return nil
}

// begin returns a transaction that check has passed. A conflict ends the transaction in which it occurs, so the next
// try begins another.
func (g *Guard) begin(ctx context.Context, db DB, opts *sql.TxOptions, check func(marked) error) (marked, error) {
	var tx marked
	err := retryConflicts(ctx, func() error {
		begun, err := db.BeginTx(ctx, opts)
		if err != nil {
			return g.beginError(err)
		}
		tx = marked{begun, g.dialect.newMark()}
		if err = check(tx); err == nil {
			err = g.setMark(ctx, tx)
		}
		if err != nil {
			_ = tx.Rollback()
		}
		return err
	})
	return tx, err
}

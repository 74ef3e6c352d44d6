package sqlguard

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
)

// Do checks f and runs work in one transaction of db. If f is refused work does
// not run, and the error is that of [Guard.Claim]; if work returns an error or
// panics the transaction is rolled back and that is Do's error; otherwise it is
// committed. ctx bounds all of it, work too: under a lease's context the
// transaction is rolled back when the lease ends.
//
// A [fencing.Write] is one transaction at READ COMMITTED, or SQLite's only
// level, and the claim its first statement. Writes of a resource run one after
// the other.
//
// A [fencing.Read] is claimed by a statement of its own, which commits; then work
// runs in a read-only transaction at REPEATABLE READ whose first statement checks
// that nothing newer has been written. Check and reads see one snapshot, taken
// after the claim, so the reads are as good as if they all happened at that
// moment. Hence the claim waits for a write that is under way, but nobody waits
// for the work of a read: reads run side by side, and beside later writes.
//
// Work that failed is not tried again. An error of the commit leaves open whether
// it took place.
func (g *Guard) Do(ctx context.Context, db DB, f fencing.Fence, work func(tx *sql.Tx) error) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if f.Mode == fencing.Write {
		return g.transact(ctx, db, g.options(sql.LevelReadCommitted, false), work, func(tx *sql.Tx) error {
			return g.Claim(ctx, tx, f)
		})
	}
	if err := g.Claim(ctx, db, f); err != nil {
		return err
	}
	return g.transact(ctx, db, g.options(sql.LevelRepeatableRead, true), work, func(tx *sql.Tx) error {
		seen, err := g.Seen(ctx, tx, f.Resource)
		if err != nil {
			return err
		}
		return seen.Check(f)
	})
}

// options leaves SQLite's isolation alone: it is always serializable, its drivers
// know no other, and some refuse to be asked.
func (g *Guard) options(level sql.IsolationLevel, readOnly bool) *sql.TxOptions {
	if g.dialect == SQLite {
		level = sql.LevelDefault
	}
	return &sql.TxOptions{Isolation: level, ReadOnly: readOnly}
}

func (g *Guard) transact(ctx context.Context, db DB, opts *sql.TxOptions, work, check func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return fmt.Errorf("sqlguard: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := check(tx); err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlguard: commit: %w", err)
	}
	return nil
}

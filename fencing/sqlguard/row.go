package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
)

// CheckUpdate judges an UPDATE of one row that carries its own fence:
//
//	result, err := tx.ExecContext(ctx,
//		`UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2`, ...)
//	err = sqlguard.PostgreSQL.CheckUpdate(ctx, tx, f, result, `SELECT fence FROM accounts WHERE id = $1`, id)
//
// MySQL's count leaves out a row that had the new values already, so there the statement has to report that it found
// the row:
//
//	UPDATE accounts SET balance = ?, fence = LAST_INSERT_ID(?) WHERE id = ? AND fence <= ?
//
// If a row was changed, CheckUpdate returns nil and sends nothing. If none was, it decides by lookup, a statement that
// selects only the row's fence and has no locking clause: a newer fence is a [*fencing.StaleError]; otherwise no row
// met the statement's conditions, which is [ErrNoRow]. In MySQL, a statement that has no LAST_INSERT_ID, or has a
// further condition, and that changed no row while the row has this very token, is [ErrNoVerdict].
//
// The fence column is BIGINT NOT NULL, and a row that has one is never deleted: a deleted row loses the token of its
// last writer. Mark it as deleted instead, by an UPDATE.
func (d Dialect) CheckUpdate(
	ctx context.Context, tx Tx, f fencing.Fence, result sql.Result, lookup string, args ...any,
) error {
	changed, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("sqlguard: update under %v: %w", f, err)
	}
	if changed > 0 || d == MySQL && foundRow(result, f) {
		return nil
	}
	seen, err := d.fenceOf(ctx, tx, f, lookup, args)
	switch {
	case err != nil:
		return err
	case d == MySQL && seen == f.Token:
		return fmt.Errorf("%w: no row changed under %v, whose token the row has: fence = LAST_INSERT_ID(?) would tell "+
			"an unmet condition from values that were there already", ErrNoVerdict, f)
	default:
		return fmt.Errorf("%w that meets the conditions of an update under %v", ErrNoRow, f)
	}
}

// foundRow reports whether an UPDATE with LAST_INSERT_ID(token) found a row: the server evaluates it for each row that
// it writes, and puts it into the reply.
func foundRow(result sql.Result, f fencing.Fence) bool {
	id, err := result.LastInsertId()
	return err == nil && id > 0 && fencing.Token(id) == f.Token
}

// CheckUpsert is [Dialect.CheckUpdate] for a statement that inserts the row if there is none and updates it only if its
// fence is not newer. In PostgreSQL and SQLite:
//
//	INSERT INTO accounts (id, balance, fence) VALUES ($1, $2, $3)
//	ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
//	WHERE accounts.fence <= excluded.fence
//
// In MySQL each column decides for itself, with no further condition:
//
//	INSERT INTO accounts (id, balance, fence) VALUES (?, ?, ?)
//	ON DUPLICATE KEY UPDATE
//	balance = IF(fence <= VALUES(fence), VALUES(balance), balance), fence = GREATEST(fence, VALUES(fence))
//
// There the count proves nothing, so CheckUpsert always looks the fence up. Run it in a transaction and roll back on an
// error: a column without its IF was written even though the fence is refused.
//
// The stale upsert of a row that was deleted is an insert like any other and is accepted. Rows that are upserted are
// marked as deleted, never deleted; or their lock is checked by the guard table.
func (d Dialect) CheckUpsert(
	ctx context.Context, tx Tx, f fencing.Fence, result sql.Result, lookup string, args ...any,
) error {
	if d != MySQL {
		changed, err := result.RowsAffected()
		if err != nil {
			return fmt.Errorf("sqlguard: upsert under %v: %w", f, err)
		}
		if changed > 0 {
			return nil
		}
	}
	seen, err := d.fenceOf(ctx, tx, f, lookup, args)
	switch {
	case err != nil:
		return err
	case d == MySQL && seen == f.Token:
		return nil
	default:
		return fmt.Errorf("%w that meets the conditions of an upsert under %v", ErrNoRow, f)
	}
}

// fenceOf returns the current fence of the row, or the error that refuses f.
func (d Dialect) fenceOf(
	ctx context.Context, tx Tx, f fencing.Fence, lookup string, args []any,
) (fencing.Token, error) {
	if d == MySQL {
		// A plain SELECT at REPEATABLE READ would read the transaction's snapshot, which may be older than the row that
		// refused the statement before.
		lookup += " FOR UPDATE"
	}
	var column sql.Null[fencing.Token]
	err := tx.QueryRowContext(ctx, lookup, args...).Scan(&column)
	switch {
	case errors.Is(err, fencing.ErrMalformed):
		return 0, fmt.Errorf("%w: the row's fence is no token, for %v; is the column a BIGINT? %w", ErrNoVerdict, f, err)
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("%w for %v, or none any more", ErrNoRow, f)
	case err != nil:
		return 0, withCause(ctx, fmt.Errorf("sqlguard: look up the fence for %v: %w", f, err))
	case !column.Valid:
		return 0, fmt.Errorf("%w: the row's fence is NULL, for %v", ErrNoVerdict, f)
	case column.V > f.Token:
		return 0, &fencing.StaleError{Resource: f.Resource, Got: f.Token, Seen: column.V}
	}
	return column.V, nil
}

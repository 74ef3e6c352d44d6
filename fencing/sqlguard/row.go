package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
)

// CheckUpdate judges an UPDATE (or DELETE) of one row that carries its own fence:
//
//	result, err := tx.ExecContext(ctx,
//		`UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2`, ...)
//	err = sqlguard.PostgreSQL.CheckUpdate(ctx, tx, f, result, `SELECT fence FROM accounts WHERE id = $1`, id)
//
// If a row was changed it returns nil and sends nothing. If none was, lookup
// decides, which selects the row's fence alone and has no locking clause: a newer
// fence is a [*fencing.StaleError]; otherwise there was no such row at the time of
// the UPDATE, which is [ErrNoRow].
//
// MySQL, unless its client asks for found rows, also counts no row where the
// UPDATE wrote the values that were there already. As it writes the fence, the
// row then has this very token, and CheckUpdate returns nil.
func (d Dialect) CheckUpdate(
	ctx context.Context, tx Tx, f fencing.Fence, result sql.Result, lookup string, args ...any,
) error {
	changed, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("sqlguard: update under %v: %w", f, err)
	}
	if changed > 0 {
		return nil
	}
	seen, err := d.fenceOf(ctx, tx, f, lookup, args)
	switch {
	case err != nil:
		return err
	case d == MySQL && seen == f.Token:
		return nil
	default:
		return fmt.Errorf("%w when it was to be updated under %v", ErrNoRow, f)
	}
}

// CheckUpsert is [Dialect.CheckUpdate] for a statement that inserts the row where
// there is none and updates it only if its fence is not newer. In PostgreSQL and
// SQLite:
//
//	INSERT INTO accounts (id, balance, fence) VALUES ($1, $2, $3)
//	ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
//	WHERE accounts.fence <= excluded.fence
//
// In MySQL, where the fence must be the last that is assigned:
//
//	INSERT INTO accounts (id, balance, fence) VALUES (?, ?, ?)
//	ON DUPLICATE KEY UPDATE
//	balance = IF(fence <= VALUES(fence), VALUES(balance), balance), fence = GREATEST(fence, VALUES(fence))
//
// Only 2 rows affected are sure to be an update in MySQL; for any other count
// CheckUpsert looks the fence up.
func (d Dialect) CheckUpsert(
	ctx context.Context, tx Tx, f fencing.Fence, result sql.Result, lookup string, args ...any,
) error {
	changed, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("sqlguard: upsert under %v: %w", f, err)
	}
	if d == MySQL && changed == 2 || d != MySQL && changed > 0 {
		return nil
	}
	seen, err := d.fenceOf(ctx, tx, f, lookup, args)
	switch {
	case err != nil:
		return err
	case d == MySQL && seen == f.Token:
		return nil
	default:
		return fmt.Errorf("%w after an upsert under %v", ErrNoRow, f)
	}
}

// fenceOf returns the fence of the row as it is now, or why f is refused.
func (d Dialect) fenceOf(ctx context.Context, tx Tx, f fencing.Fence, lookup string, args []any) (fencing.Token, error) {
	if d == MySQL {
		// A plain SELECT at REPEATABLE READ would look at the transaction's
		// snapshot, which may be older than what the statement before was refused by.
		lookup += " FOR UPDATE"
	}
	var seen fencing.Token
	err := tx.QueryRowContext(ctx, lookup, args...).Scan(&seen)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("%w for %v", ErrNoRow, f)
	case err != nil:
		return 0, fmt.Errorf("sqlguard: look up the fence for %v: %w", f, err)
	case seen > f.Token:
		return 0, &fencing.StaleError{Resource: f.Resource, Got: f.Token, Seen: seen}
	}
	return seen, nil
}

package fencelock_test

import (
	"context"
	"database/sql"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/rwlock"
)

func deposit(ctx context.Context, locker *rwlock.Locker, db *sql.DB, amount int) error {
	err := locker.Do(ctx, "account:42", func(ctx context.Context) error {
		fence, err := fencing.Require(ctx, "account:42") // the token of this grant
		if err != nil {
			return err
		}
		result, err := db.ExecContext(ctx, `UPDATE accounts SET balance = balance + $1, fence = $2
			WHERE id = 42 AND fence <= $2`, amount, fence.Token)
		if err != nil {
			return err
		}
		return sqlguard.PostgreSQL.CheckUpdate(ctx, db, fence, result,
			`SELECT fence FROM accounts WHERE id = 42`)
	})
	if rwlock.Completed(err) { // lost after the storage had accepted the work: do not repeat it
		return nil
	}
	return err
}

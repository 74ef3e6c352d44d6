// Package bunguard is a recipe for bun: its queries run in the transaction of a guard, and the database refuses them if
// the fence is stale.
package bunguard

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// Do has the contract of [sqlguard.Guard.Do]. Its work gets the transaction as a bun.Tx: a query of db itself would be
// none of the transaction's. RunInTx of the bun.Tx is a savepoint.
func Do(ctx context.Context, db *bun.DB, guard *sqlguard.Guard, f fencing.Fence,
	work func(ctx context.Context, tx bun.Tx) error,
) error {
	handle := &beginner{DB: db.DB, bun: db}
	return guard.Do(ctx, handle, f, func(ctx context.Context, _ *sql.Tx) error {
		return work(ctx, handle.tx)
	})
}

// beginner is the handle that the guard gets: statements of the guard go to database/sql, because bun rewrites
// placeholders, and bun begins the transaction, because only bun can make a bun.Tx.
type beginner struct {
	*sql.DB
	bun *bun.DB
	tx  bun.Tx // the latest one
}

// BeginTx begins a transaction. The guard calls it again if its claim failed by a conflict.
func (b *beginner) BeginTx(ctx context.Context, opts *sql.TxOptions) (tx *sql.Tx, err error) {
	if b.tx, err = b.bun.BeginTx(ctx, opts); err != nil {
		return nil, err
	}
	return b.tx.Tx, nil
}

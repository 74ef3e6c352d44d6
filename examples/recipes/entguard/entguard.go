// Package entguard is a recipe for ent: its client runs in the transaction of a guard, and the database refuses the
// writes if the fence is stale.
package entguard

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// Do has the contract of [sqlguard.Guard.Do]. Its work gets a driver over the transaction, for a client of its own:
//
//	err := entguard.Do(ctx, driver, guard, fence, func(ctx context.Context, inside dialect.Driver) error {
//		return ent.NewClient(ent.Driver(inside)).Account.UpdateOneID(7).AddBalance(10).Exec(ctx)
//	})
//
// A transaction of that client is a part of the guard's: its Commit and Rollback do nothing, and an error of the work
// rolls back all of it.
func Do(ctx context.Context, outer *entsql.Driver, guard *sqlguard.Guard, f fencing.Fence,
	work func(ctx context.Context, inside dialect.Driver) error,
) error {
	return guard.Do(ctx, outer.DB(), f, func(ctx context.Context, tx *sql.Tx) error {
		return work(ctx, driver{entsql.NewDriver(outer.Dialect(), entsql.Conn{ExecQuerier: tx})})
	})
}

// driver is a driver of ent over a transaction that has begun.
type driver struct{ *entsql.Driver }

// Tx is what ent calls for a mutation of several statements.
func (d driver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// BeginTx is what ent calls for a transaction with options.
func (d driver) BeginTx(ctx context.Context, _ *entsql.TxOptions) (dialect.Tx, error) {
	return d.Tx(ctx)
}

// Close does nothing: the guard ends the transaction.
func (d driver) Close() error { return nil }

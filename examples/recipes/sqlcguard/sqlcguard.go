// Package sqlcguard is a recipe for sqlc: its queries run in the transaction of a guard, and the database refuses them
// if the fence is stale.
package sqlcguard

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/pgxguard"

	"github.com/seed74116694/fencelock/examples/recipes/sqlcguard/bank"
)

// Do has the contract of [pgxguard.Guard.Do]. Its work gets the queries over the transaction: those over the pool would
// be none of the transaction's. With database/sql the same is sqlguard and a *sql.Tx.
func Do(ctx context.Context, pool *pgxpool.Pool, guard *pgxguard.Guard, f fencing.Fence,
	work func(ctx context.Context, q *bank.Queries) error,
) error {
	return guard.Do(ctx, pool, f, func(ctx context.Context, tx pgx.Tx) error {
		return work(ctx, bank.New(tx))
	})
}

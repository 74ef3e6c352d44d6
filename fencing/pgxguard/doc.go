// Package pgxguard is package sqlguard for programs that use pgx without database/sql: it makes PostgreSQL refuse the
// writes of a lock holder that was paused for too long.
//
//	guard, err := pgxguard.New()
//	err = guard.Create(ctx, pool) // once; or put guard.Schema() into a migration
//	...
//	fence, err := fencing.Require(ctx, "accounts/7")
//	err = guard.Do(ctx, pool, fence, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.CopyFrom(ctx, pgx.Identifier{"postings"}, columns, rows)
//		return err
//	})
//
// The table, the statements, the checks and the errors are the same as in package sqlguard, so programs with pgx and
// programs with database/sql can share a guard table. The errors are named there, such as
// [sqlguard.ErrTransactionEnded], and [sqlguard.IsConflict] knows those of pgx.
//
// # Handles
//
// A [DB] begins transactions: a *pgxpool.Pool, a *pgxpool.Conn or a *pgx.Conn. A [Tx] runs statements: any of these,
// and a [pgx.Tx], also inside another one, where it is a savepoint. All modes of query execution work, the simple
// protocol included.
package pgxguard

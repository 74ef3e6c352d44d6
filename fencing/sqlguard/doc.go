// Package sqlguard makes a SQL database refuse the writes of a lock holder that was paused for too long. It needs only
// database/sql; the caller chooses the driver. It supports PostgreSQL, MySQL with MariaDB, and SQLite.
//
// # Guard table
//
// A [Guard] keeps the two registers of package fencing in a separate table, one row per resource, in the database of
// the data that it guards. It fits any schema:
//
//	guard, err := sqlguard.New(sqlguard.PostgreSQL)
//	err = guard.Create(ctx, db) // once; or put guard.Schema() into a migration
//	...
//	fence, err := fencing.Require(ctx, "accounts/7")
//	err = guard.Do(ctx, db, fence, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, `UPDATE accounts SET ...`)
//		return err
//	})
//
// [Guard.Do] begins and ends the transaction; [Guard.DoAll] is Do under several locks. In the caller's own transaction,
// [Guard.Claim] is its first statement, and the only one added to it. It locks the resource's guard row until the
// transaction ends: no newer access intervenes between the check and the commit, and a stale access is refused before
// it has touched anything.
//
// # Fence column
//
// A row that is written only under its lock can carry the token itself, and then the check costs no statement at all:
//
//	UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// If that changed no row, [Dialect.CheckUpdate] distinguishes a stale token from a row that does not exist;
// [Dialect.CheckUpsert] does so for an upsert. The column is BIGINT NOT NULL, and rows are marked as deleted, never
// deleted: a deleted row loses the token of its last writer, and a stale insert is accepted. A single column has a
// price: it records writers only, so a paused writer is still accepted after a newer reader has read. If readers hold
// locks too, use the table.
//
// # Names
//
// The name of a resource is always a parameter, never part of a statement. It is stored and compared as bytes (BYTEA,
// VARBINARY, BLOB), so "a" and "A" are two resources under any collation, and a name may hold NUL. Names of tables,
// which no database takes as parameters, have to be lower-case identifiers; [New] refuses anything else.
package sqlguard

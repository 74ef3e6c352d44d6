// Package sqlguard makes a SQL database refuse the writes of a lock holder that
// was paused for too long. It needs database/sql and nothing else; the driver is
// yours. PostgreSQL, MySQL with MariaDB, and SQLite are known.
//
// # Guard table
//
// A [Guard] keeps the two registers of package fencing in a table of its own, one
// row per resource, beside the data that it guards. It fits any schema:
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
// [Guard.Do] begins and ends the transaction. In a transaction of your own,
// [Guard.Claim] is its first statement, and the only one added to it. It takes
// the lock of the resource's guard row, and the database holds that lock until the
// transaction ends: nobody newer gets in between the check and the commit, and
// whoever is refused was so before it touched anything.
//
// # Fence column
//
// A row that is written only under its lock can carry the token itself, and then
// the check costs no statement at all:
//
//	UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// If that changed no row, [Dialect.CheckUpdate] tells a stale token from a row
// that does not exist; [Dialect.CheckUpsert] does it for an upsert. The column is
// BIGINT NOT NULL, and rows are marked as deleted, never deleted: with the row goes the
// memory of who wrote last, and a stale insert is accepted. The price of a single
// column: it remembers writers only, so a paused writer is still accepted after a
// newer reader has read. Where readers hold locks too, use the table.
//
// # Names
//
// The name of a resource is always a parameter, never part of a statement. It is
// stored and compared as bytes (BYTEA, VARBINARY, BLOB), so "a" and "A" are two
// resources under any collation, and a name may hold NUL. Names of tables, which
// no database takes as parameters, have to be lower-case identifiers; [New]
// refuses anything else.
package sqlguard

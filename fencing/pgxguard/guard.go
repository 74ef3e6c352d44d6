package pgxguard

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// Guard checks fences against the registers in its table. It holds no connection and no state, and is safe for
// concurrent use. The zero value refuses every call with [sqlguard.ErrOption]; create a Guard with New.
type Guard struct{ guard sqlguard.Guard }

// New returns a guard. Its options are those of [sqlguard.New], and so are its errors.
func New(opts ...sqlguard.Option) (*Guard, error) {
	guard, err := sqlguard.New(sqlguard.PostgreSQL, opts...)
	if err != nil {
		return nil, err
	}
	return &Guard{*guard}, nil
}

// Schema returns the statement that creates the guard table unless it exists; see [sqlguard.Guard.Schema].
func (g *Guard) Schema() string { return g.guard.Schema() }

// Create runs [Guard.Schema]. Processes that start together should not all call it: PostgreSQL may report a duplicate
// to one of them.
func (g *Guard) Create(ctx context.Context, db Tx) error {
	return g.guard.Native().Create(ctx, session{db})
}

// Do checks f and runs work in one transaction of db, with the contract of [sqlguard.Guard.Do]: a [fencing.Write] is a
// transaction at READ COMMITTED that begins with the claim, and the work of a [fencing.Read] runs in a read-only
// transaction at REPEATABLE READ, whose snapshot shows the claim. If f is refused, work does not run, and the error is
// the same as of [Guard.Claim]. If work returns an error or panics, the transaction is rolled back.
//
// work may use all of tx: CopyFrom, SendBatch, Prepare, large objects, and Begin for savepoints. Before the commit Do
// verifies that the transaction is still the one that was checked; a Commit or Rollback of tx by the work is
// [sqlguard.ErrTransactionEnded]. The work has to close its rows and batches before it returns.
//
// ctx bounds all of it. When it ends, as the context of a lease does at a loss, Do closes the connection, even if work
// does not look at ctx. PostgreSQL then rolls the transaction back, at once if it is idle, and a pool replaces the
// connection. The error matches the cause of the end, such as [fencing.ErrLost]. A process that is paused closes
// nothing. For this case PostgreSQL itself ends a transaction that was idle for longer than the lease behind f, or ctx,
// had left when Do began, but not before a second. It does not count as idle while a CopyFrom is half sent or rows are
// half read: a process that is paused there keeps the next holder waiting.
//
// Given a *pgx.Conn or a *pgxpool.Conn on which a transaction is under way, Do returns [sqlguard.ErrInTransaction] and
// sends nothing. Inside the work of a write on the same resource, under its context, Do is [fencing.ErrNested].
func (g *Guard) Do(ctx context.Context, db DB, f fencing.Fence, work func(context.Context, pgx.Tx) error) error {
	return g.DoAll(ctx, db, []fencing.Fence{f}, work)
}

// DoAll is [Guard.Do] for work that is under several locks, such as a transfer between two accounts, with the contract
// of [sqlguard.Guard.DoAll]: all fences are claimed in one transaction, in the byte order of their resources, and one
// refused fence refuses all of them.
func (g *Guard) DoAll(
	ctx context.Context, db DB, fences []fencing.Fence, work func(context.Context, pgx.Tx) error,
) error {
	var inside func(context.Context, sqlguard.Transaction) error
	if work != nil {
		inside = func(ctx context.Context, tx sqlguard.Transaction) error {
			t := tx.(*transaction)
			return t.ended(work(ctx, worked{t.tx, t}))
		}
	}
	return g.guard.Native().DoAll(ctx, database{session{db}, db}, fences, inside)
}

// Claim checks f in the caller's own transaction and raises its register. On refusal, it returns a
// [*fencing.StaleError]; roll back. Make it the first statement of tx: it locks the resource's guard row until tx ends.
// Given a pool it commits at once. It has the contract of [sqlguard.Guard.Claim].
func (g *Guard) Claim(ctx context.Context, tx Tx, f fencing.Fence) error {
	return g.guard.Native().Claim(ctx, session{tx}, f)
}

// Derive is [Guard.Claim] for storing a value that was derived from a read; see [sqlguard.Guard.Derive].
func (g *Guard) Derive(ctx context.Context, tx Tx, f fencing.Fence) error {
	return g.guard.Native().Derive(ctx, session{tx}, f)
}

// Seen returns the registers of a resource, zero if it was never claimed.
func (g *Guard) Seen(ctx context.Context, tx Tx, resource string) (fencing.Registers, error) {
	return g.guard.Native().Seen(ctx, session{tx}, resource)
}

// CheckUpdate judges an UPDATE of one row that carries its own fence. It has the contract of
// [sqlguard.Dialect.CheckUpdate]:
//
//	tag, err := tx.Exec(ctx, `UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2`, ...)
//	err = guard.CheckUpdate(ctx, tx, f, tag, `SELECT fence FROM accounts WHERE id = $1`, id)
func (g *Guard) CheckUpdate(
	ctx context.Context, tx Tx, f fencing.Fence, tag pgconn.CommandTag, lookup string, args ...any,
) error {
	return g.guard.Native().CheckUpdate(ctx, session{tx}, f, driver.RowsAffected(tag.RowsAffected()), lookup, args...)
}

// CheckUpsert is [Guard.CheckUpdate] for a statement that inserts the row if there is none; see
// [sqlguard.Dialect.CheckUpsert].
func (g *Guard) CheckUpsert(
	ctx context.Context, tx Tx, f fencing.Fence, tag pgconn.CommandTag, lookup string, args ...any,
) error {
	return g.guard.Native().CheckUpsert(ctx, session{tx}, f, driver.RowsAffected(tag.RowsAffected()), lookup, args...)
}

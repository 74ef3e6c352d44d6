package sqlguard

import (
	"context"
	"database/sql"

	"github.com/seed74116694/fencelock/fencing"
)

// Native has the methods of a [Guard] for a driver that is used without database/sql: the same statements, the same
// checks and the same errors, over the handles of that driver. It is for packages that adapt a driver. For pgx that is
// the module fencing/pgxguard, which programs use instead.
type Native struct{ guard *Guard }

// Session runs statements. A pool counts as one too.
type Session interface {
	// ExecContext returns a result with the number of rows that the statement has changed.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	// QueryRowContext returns the first row. Without a row its error matches [sql.ErrNoRows].
	QueryRowContext(ctx context.Context, query string, args ...any) Row
	// MayBeIn reports whether the session's statements may be a part of tx. It is false if they certainly are not.
	MayBeIn(tx Transaction) bool
}

// Row is the first row of an answer. Scan knows destinations that are a [sql.Scanner].
type Row interface{ Scan(dest ...any) error }

// Transaction is a transaction that has begun. It ends by Commit or Rollback; a Rollback after either does nothing. An
// error of a transaction that was ended because of its context matches [sql.ErrTxDone], or the error of the context.
type Transaction interface {
	Session
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Database begins transactions.
type Database interface {
	Session
	// Begin begins a transaction at READ COMMITTED, or a read-only one at REPEATABLE READ. If ctx ends before the
	// transaction does, the transaction is rolled back.
	Begin(ctx context.Context, readOnly bool) (Transaction, error)
	// RefuseOpen returns an error that matches [ErrInTransaction] if the database is a connection on which a transaction
	// is under way, which the next COMMIT or ROLLBACK would end. It is called before each transaction of work, and
	// reading says whether that will be read-only.
	RefuseOpen(ctx context.Context, reading bool) error
}

// Create is [Guard.Create].
func (n Native) Create(ctx context.Context, db Session) error { return n.guard.create(ctx, db) }

// Claim is [Guard.Claim].
func (n Native) Claim(ctx context.Context, tx Session, f fencing.Fence) error {
	return n.guard.claim(ctx, tx, f)
}

// Derive is [Guard.Derive].
func (n Native) Derive(ctx context.Context, tx Session, f fencing.Fence) error {
	return n.guard.deriveFrom(ctx, tx, f)
}

// Seen is [Guard.Seen].
func (n Native) Seen(ctx context.Context, tx Session, resource string) (fencing.Registers, error) {
	return n.guard.seen(ctx, tx, resource)
}

// DoAll is [Guard.DoAll], and with one fence [Guard.Do]. work gets the transaction that db has begun.
func (n Native) DoAll(
	ctx context.Context, db Database, fences []fencing.Fence, work func(context.Context, Transaction) error,
) error {
	return n.guard.doAll(ctx, db, fences, work)
}

// CheckUpdate is [Dialect.CheckUpdate].
func (n Native) CheckUpdate(
	ctx context.Context, tx Session, f fencing.Fence, result sql.Result, lookup string, args ...any,
) error {
	if err := n.guard.refuseZero(); err != nil {
		return err
	}
	return n.guard.dialect.checkUpdate(ctx, tx, f, result, lookup, args)
}

// CheckUpsert is [Dialect.CheckUpsert].
func (n Native) CheckUpsert(
	ctx context.Context, tx Session, f fencing.Fence, result sql.Result, lookup string, args ...any,
) error {
	if err := n.guard.refuseZero(); err != nil {
		return err
	}
	return n.guard.dialect.checkUpsert(ctx, tx, f, result, lookup, args)
}

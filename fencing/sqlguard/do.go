package sqlguard

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
)

// Do checks f and runs work in one transaction of db. If f is refused, work does not run, and Do returns the error of
// [Guard.Claim]; if work returns an error or panics, the transaction is rolled back and Do returns that error or
// panics; otherwise it is committed. ctx bounds all of it, including work: under a lease's context the transaction is
// rolled back when the lease ends. An error that comes from the end of ctx matches the cause of that end too, such as
// [fencing.ErrLost].
//
// A [fencing.Write] is one transaction at READ COMMITTED, or SQLite's only level, and the claim its first statement.
// Writes of a resource run one after the other.
//
// A [fencing.Read] is claimed by a separate statement, which commits; then work runs in a read-only transaction at
// REPEATABLE READ. Its first statement checks that nothing newer has been written. Check and reads see one snapshot,
// taken after the claim, so the reads are equivalent to reads at that moment. Hence the claim waits for a running
// write, but no access waits for the work of a read: reads run concurrently with each other and with later writes. Work
// that writes is an error and changes nothing: PostgreSQL, MySQL and MariaDB refuse the statement, and in SQLite the
// transaction is rolled back with [ErrReadOnly] when work returns.
//
// work gets a context that marks it as running inside; pass it on. Inside a write, Do on the same resource under that
// context returns [ErrNested] at once, and nothing is sent: it would wait for the row that this write has locked. Use
// tx. Do on another resource is allowed: it is a separate transaction, on a second connection, which stays committed if
// the outer one is rolled back. All callers have to nest resources in one order. Otherwise two of them can deadlock,
// and the database does not detect it, because neither of the outer transactions waits for it. In SQLite a write inside
// a write waits for itself, even on another resource, until the busy timeout ends.
//
// A claim that fails by a conflict, see [IsConflict], is retried a few times, because no work has run by then. Failed
// work is not retried. An error of the commit leaves open whether it took place, unless it is a conflict.
//
// A read in a transaction that does not show its claim is [ErrClaimNotVisible]. Before the commit Do verifies that the
// transaction is still the one that was checked; if it is not, that is [ErrTransactionEnded]. So work must send no
// COMMIT or ROLLBACK, and must close its rows before it returns. In PostgreSQL the verification is one more statement,
// a round trip; in MySQL, MariaDB and SQLite it is a savepoint, two statements.
//
// A *sql.Conn is refused with [ErrInTransaction] while another Do, from any goroutine, or a transaction of the caller
// is under way on it. In PostgreSQL that costs two statements on each *sql.Conn; in the other databases a read checks
// by an empty transaction. A connection inside a type without the method Raw of *sql.Conn is not recognized in
// PostgreSQL, and a Do that ends the transaction of another is detected before the commit.
//
// A write of a paused holder keeps the guard row locked, and the next holder waits for it. In PostgreSQL the server
// ends the transaction when it has been idle for longer than the lease behind ctx's fence, or ctx itself, had left when
// Do began, but not before a second; see [fencing.Deadline]. The other databases have no such limit for a transaction;
// docs/fencing.md describes their settings.
func (g *Guard) Do(ctx context.Context, db DB, f fencing.Fence, work func(context.Context, *sql.Tx) error) error {
	if err := g.refuseZero(); err != nil {
		return err
	}
	if work == nil {
		return fmt.Errorf("%w: the work under %v is nil", ErrOption, f)
	}
	if err := f.Validate(); err != nil {
		return err
	}
	if s := g.sectionOf(ctx, f.Resource); s != nil {
		return nestedIn(s)
	}
	return withCause(ctx, g.do(ctx, db, f, work))
}

func (g *Guard) do(ctx context.Context, db DB, f fencing.Fence, work func(context.Context, *sql.Tx) error) error {
	if err := g.refuseOpen(ctx, db, f.Mode); err != nil {
		return err
	}
	if f.Mode == fencing.Write {
		return g.transact(ctx, db, g.options(sql.LevelReadCommitted, false), func(tx marked) error {
			with := arguments{fence: f, idle: idleLimit(ctx, f.Resource), mark: tx.mark}
			return g.check(ctx, tx, g.statements.claimSection, with, fencing.Registers.Check)
		}, func(tx marked) error {
			return g.inSection(ctx, tx.Tx, f.Resource, work)
		})
	}
	if err := retryConflicts(ctx, func() error { return g.Claim(ctx, db, f) }); err != nil {
		return err
	}
	return g.transact(ctx, db, g.options(sql.LevelRepeatableRead, true), func(tx marked) error {
		return g.recheck(ctx, tx, f)
	}, func(tx marked) error {
		return g.onlyReading(ctx, tx, f, func() error { return work(ctx, tx.Tx) })
	})
}

// recheck checks a read again, in the snapshot of its work. The snapshot has to show the claim: then it also shows
// every older write, because none was accepted after the claim.
func (g *Guard) recheck(ctx context.Context, tx marked, f fencing.Fence) error {
	seen, err := g.registers(ctx, tx, g.statements.recheck, arguments{fence: f, mark: tx.mark})
	if err != nil {
		return err
	}
	if err := seen.Check(f); err != nil {
		return err
	}
	if seen.MaxRead < f.Token {
		return fmt.Errorf("%w: %v, the newest read in its snapshot is %d", ErrClaimNotVisible, f, uint64(seen.MaxRead))
	}
	return nil
}

// options leaves SQLite's isolation at its default: it is always serializable, its drivers support no other level, and
// some refuse an explicit one.
func (g *Guard) options(level sql.IsolationLevel, readOnly bool) *sql.TxOptions {
	if g.dialect == SQLite {
		level = sql.LevelDefault
	}
	return &sql.TxOptions{Isolation: level, ReadOnly: readOnly}
}

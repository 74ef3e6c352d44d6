package sqlguard

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ctxerr"
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

// transact runs check and then work in one transaction.
func (g *Guard) transact(ctx context.Context, db DB, opts *sql.TxOptions, check, work func(marked) error) error {
	tx, err := g.begin(ctx, db, opts, check)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := work(tx); err != nil {
		return err
	}
	if err := g.requireMark(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlguard: commit: %w", err)
	}
	return nil
}

// begin returns a transaction that check has passed. A conflict ends the transaction in which it occurs, so the next
// try begins another.
func (g *Guard) begin(ctx context.Context, db DB, opts *sql.TxOptions, check func(marked) error) (marked, error) {
	var tx marked
	err := retryConflicts(ctx, func() error {
		begun, err := db.BeginTx(ctx, opts)
		if err != nil {
			return g.beginError(err)
		}
		tx = marked{begun, newMark(g.dialect)}
		if err = check(tx); err == nil {
			err = g.setMark(ctx, tx)
		}
		if err != nil {
			_ = tx.Rollback()
		}
		return err
	})
	return tx, err
}

// marked is a transaction with a mark: a value that ends with the transaction and that no other transaction has. A mark
// that is still there before the commit proves that the transaction is the one that was checked.
//
// No database reports a change of the transaction. PostgreSQL accepts BEGIN inside a transaction and COMMIT outside of
// one with a warning; after a COMMIT by the work, or by another user of the connection, each further statement is a
// transaction by itself. MySQL and MariaDB continue in the same way after a deadlock or DDL. "COMMIT; BEGIN" and COMMIT
// AND CHAIN leave a transaction open, but another one.
//
// In PostgreSQL the mark is the value of a setting that is local to the transaction; the check sets it. A savepoint
// would cost a round trip more and make a subtransaction of the work. In the other databases the mark is a savepoint.
type marked struct {
	*sql.Tx
	mark string
}

func newMark(d Dialect) string {
	if d == MySQL { // performance_schema would keep each name forever, as the digest of another statement
		return "fencelock_guard"
	}
	return "fencelock_" + rand.Text()
}

// setMark sets the mark, if the check has not set it.
func (g *Guard) setMark(ctx context.Context, tx marked) error {
	if g.dialect == PostgreSQL {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+tx.mark); err != nil {
		return fmt.Errorf("sqlguard: begin: %w", err)
	}
	return nil
}

const selectMark = `SELECT coalesce(current_setting('fencelock.mark', true), '')`

// requireMark returns an error unless tx is the transaction that was marked.
func (g *Guard) requireMark(ctx context.Context, tx marked) error {
	if g.dialect == PostgreSQL {
		return requireSetting(ctx, tx)
	}
	_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+tx.mark)
	switch {
	case err == nil:
		return nil
	case g.isNoSavepoint(err):
		return fmt.Errorf("%w: %w", ErrTransactionEnded, err)
	default:
		return fmt.Errorf("sqlguard: commit: %w", err)
	}
}

func requireSetting(ctx context.Context, tx marked) error {
	var mark string
	if err := tx.QueryRowContext(ctx, selectMark).Scan(&mark); err != nil {
		return fmt.Errorf("sqlguard: commit: %w", err)
	}
	if mark != tx.mark {
		return ErrTransactionEnded
	}
	return nil
}

// isNoSavepoint reports whether a RELEASE failed because there is no such savepoint: MySQL's error 1305, and a text of
// SQLite, which has no code for it.
func (g *Guard) isNoSavepoint(err error) bool {
	if g.dialect == SQLite {
		return strings.Contains(err.Error(), "no such savepoint")
	}
	return sqlState(err) == "42000"
}

// refuseOpen returns an error if db is a connection that is inside a transaction: the next COMMIT or ROLLBACK would end
// that transaction. PostgreSQL needs a probe. The others refuse to begin; for a read, refuseOpen begins an empty
// transaction before the claim, which would otherwise become a part of the open transaction.
func (g *Guard) refuseOpen(ctx context.Context, db DB, mode fencing.Mode) error {
	_, isConn := db.(interface{ Raw(func(any) error) error })
	switch {
	case !isConn:
		return nil
	case g.dialect == PostgreSQL:
		return g.probe(ctx, db)
	case mode == fencing.Write:
		return nil
	}
	tx, err := db.BeginTx(ctx, g.options(sql.LevelRepeatableRead, true))
	if err != nil {
		return g.beginError(err)
	}
	return tx.Rollback()
}

const (
	setProbe    = `SELECT set_config('fencelock.probe', $1, true)`
	selectProbe = `SELECT coalesce(current_setting('fencelock.probe', true), '')`
)

// probe tests for a transaction in PostgreSQL by a setting that is local to the transaction: outside of a transaction
// the setting ends with its own statement.
func (g *Guard) probe(ctx context.Context, conn Tx) error {
	var set, found string
	err := conn.QueryRowContext(ctx, setProbe, newMark(g.dialect)).Scan(&set)
	if err == nil {
		err = conn.QueryRowContext(ctx, selectProbe).Scan(&found)
	}
	switch {
	case err != nil:
		return fmt.Errorf("sqlguard: begin: %w", err)
	case found == set:
		return ErrInTransaction
	}
	return nil
}

// activeTransaction is the SQLSTATE for a transaction that is already under way.
const activeTransaction = "25001"

// beginError is the error of a BeginTx that failed with err.
func (g *Guard) beginError(err error) error {
	inside := sqlState(err) == activeTransaction ||
		g.dialect == SQLite && strings.Contains(err.Error(), "within a transaction")
	if inside {
		return fmt.Errorf("%w: %w", ErrInTransaction, err)
	}
	return fmt.Errorf("sqlguard: begin: %w", err)
}

// withCause returns err with the cause of ctx's end, if err comes from that end: drivers know no causes, and
// database/sql reports of the commit only that the transaction has been rolled back.
func withCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, sql.ErrTxDone) && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", err, ctxerr.Cause(ctx))
	}
	return ctxerr.WithCause(ctx, err)
}

// section is the work of a write under Do. Its transaction holds the lock of the resource's guard row, so a claim of
// that resource in another transaction waits until the section has ended.
type section struct {
	guard    *Guard
	resource string
	tx       *sql.Tx
	over     atomic.Bool // the work has returned
	outer    *section
}

// sectionKey is the context key of the innermost *section.
type sectionKey struct{}

func innermostSection(ctx context.Context) *section {
	s, _ := ctx.Value(sectionKey{}).(*section)
	return s
}

// inSection runs work under a context that belongs to the section of tx.
func (g *Guard) inSection(
	ctx context.Context, tx *sql.Tx, resource string, work func(context.Context, *sql.Tx) error,
) error {
	s := &section{guard: g, resource: resource, tx: tx, outer: innermostSection(ctx)}
	defer s.over.Store(true)
	return work(context.WithValue(ctx, sectionKey{}, s), tx)
}

// sectionOf returns the section of resource that ctx belongs to, or nil. A claim of the resource from there in another
// transaction would wait for itself, and the database cannot detect it, because the section waits for its own code.
//
// A guard does not know its database, so the name of its table stands for it. Handles cannot identify the database:
// *sql.DB and *sqlx.DB differ for one database, and not every type can be compared.
func (g *Guard) sectionOf(ctx context.Context, resource string) *section {
	for s := innermostSection(ctx); s != nil; s = s.outer {
		if s.resource == resource && s.guard.table == g.table && s.guard.dialect == g.dialect && !s.over.Load() {
			return s
		}
	}
	return nil
}

// nestedIn is the error of a claim that would wait for s.
func nestedIn(s *section) error {
	return fmt.Errorf("sqlguard: %w: %q in table %s, whose write has a transaction to be used",
		ErrNested, s.resource, s.guard.table)
}

// changes are the counters that show whether an SQLite connection has written: the changed rows, and, because changes
// of the schema and of the user version do not count as rows, the versions of both.
type changes struct {
	rows     int64
	versions string
}

const selectChanges = `SELECT total_changes(), schema_version || '/' || user_version
FROM pragma_schema_version, pragma_user_version`

// onlyReading runs the work of a read in tx, and returns an error if it has written.
//
// SQLite has no read-only transactions. Its PRAGMA query_only would refuse the write itself, but belongs to the
// connection: database/sql rolls back and gives the connection to the next user at the moment in which the context
// ends, and there is no statement between. So the counters decide, which leave no state behind.
func (g *Guard) onlyReading(ctx context.Context, tx marked, f fencing.Fence, work func() error) error {
	if g.dialect != SQLite {
		return work()
	}
	before, err := changesOf(ctx, tx)
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	after, err := changesOf(ctx, tx)
	if err != nil {
		return err
	}
	if after != before {
		if err := g.requireMark(ctx, tx); err != nil {
			return err
		}
		return fmt.Errorf("%w: %v: rolled back", ErrReadOnly, f)
	}
	return nil
}

func changesOf(ctx context.Context, tx marked) (seen changes, err error) {
	if err := tx.QueryRowContext(ctx, selectChanges).Scan(&seen.rows, &seen.versions); err != nil {
		return changes{}, fmt.Errorf("sqlguard: changes of a read: %w", err)
	}
	return seen, nil
}

const (
	minIdle = time.Second                      // below it, a slow network would look like a pause
	maxIdle = math.MaxInt32 * time.Millisecond // PostgreSQL's
)

// idleLimit returns the time that the lease behind ctx's fence, and ctx itself, have left; 0 if neither has a deadline.
func idleLimit(ctx context.Context, resource string) time.Duration {
	limit, bounded := maxIdle, false
	for _, deadline := range []func() (time.Time, bool){
		ctx.Deadline,
		func() (time.Time, bool) { return fencing.Deadline(ctx, resource) },
	} {
		if at, ok := deadline(); ok {
			limit, bounded = min(limit, time.Until(at)), true
		}
	}
	if !bounded {
		return 0
	}
	return max(limit, minIdle)
}

package sqlguard

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/errs"
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
// a write waits for itself, even on another resource, until the busy timeout ends. [Guard.DoAll] is one transaction for
// several resources.
//
// A claim that fails by a conflict, see [IsConflict], is retried a few times, because no work has run by then. Failed
// work is not retried. An error of the commit leaves open whether it took place, unless it is a conflict.
//
// A read in a transaction that does not show its claim is [ErrClaimNotVisible]. When work has returned, nil or an
// error, Do verifies that the transaction is still the one that was checked; if not, that is [ErrTransactionEnded]. So
// work must send no COMMIT or ROLLBACK, must return at the first error of a statement, and must close its rows before
// it returns. In PostgreSQL the verification is one more statement, a round trip; in MySQL, MariaDB and SQLite it is a
// savepoint, two statements. In MySQL and MariaDB one more tells, after an error that ends a transaction, whether work
// went on.
//
// A *sql.Conn is refused with [ErrInTransaction] while another Do, from any goroutine, or a transaction of the caller
// is under way on it. In PostgreSQL that costs two statements on each *sql.Conn; in the other databases a read checks
// by an empty transaction. A connection inside a type without the method Raw of *sql.Conn is not recognized in
// PostgreSQL, and a Do that ends the transaction of another is detected before the commit.
//
// A write of a paused holder keeps the guard row locked, and the next holder waits for it. In PostgreSQL the server
// ends the transaction when it has been idle for longer than the lease behind ctx's fence, or ctx itself, had left when
// Do began, but not before a second; see [fencing.Deadline]. It does not count as idle while rows are half read: a
// process that is paused there keeps the next holder waiting. The other databases have no such limit for a transaction;
// docs/fencing-sql.md describes their settings.
func (g *Guard) Do(ctx context.Context, db DB, f fencing.Fence, work func(context.Context, *sql.Tx) error) error {
	return g.DoAll(ctx, db, []fencing.Fence{f}, work)
}

// DoAll is [Guard.Do] for work that is under several locks, such as a transfer between two accounts. All fences are
// claimed in one transaction, in the byte order of their resources whatever the order of fences: calls of DoAll do not
// deadlock on each other's claims. One refused fence refuses all of them, with a [*fencing.StaleError] that names its
// resource, and then no register is raised.
//
// If one of the fences is a [fencing.Write], the claims are the first statements of the transaction of work, one for
// each fence. They lock all guard rows until it ends, also the rows of read fences: so each resource counts as inside,
// and a Do on one of them under the context of work is [ErrNested]. In PostgreSQL the transaction may be idle for as
// long as the first of the leases to end has left.
//
// If all fences are a [fencing.Read], they are claimed in one transaction, and then work runs in one read-only
// transaction that checks all of them in its snapshot, with one statement for each.
//
// In MySQL and MariaDB an insert of a guard row would lock a gap of the table, which resources of other names share. So
// rows that are missing are inserted before, each in a transaction of its own; they stay if a fence is refused, with
// registers of zero.
//
// No fence, and two fences of one resource, are [ErrOption], and nothing is sent.
func (g *Guard) DoAll(
	ctx context.Context, db DB, fences []fencing.Fence, work func(context.Context, *sql.Tx) error,
) error {
	var inside func(context.Context, Transaction) error
	if work != nil {
		inside = func(ctx context.Context, tx Transaction) error { return work(ctx, tx.(*transaction).tx) }
	}
	return g.doAll(ctx, database{session{db}, db, g.dialect}, fences, inside)
}

func (g *Guard) doAll(
	ctx context.Context, db Database, fences []fencing.Fence, work func(context.Context, Transaction) error,
) error {
	if err := g.refuseZero(); err != nil {
		return err
	}
	if work == nil {
		return fmt.Errorf("%w: the work under %v is nil", ErrOption, list(fences))
	}
	fences, err := inOrder(fences)
	if err != nil {
		return err
	}
	for _, f := range fences {
		if s := g.sectionOf(ctx, f.Resource); s != nil {
			return nestedIn(s, f.Resource)
		}
	}
	return withCause(ctx, g.do(ctx, db, fences, work))
}

// inOrder returns fences in the byte order of their resources, or an error if they must not be claimed together.
func inOrder(fences []fencing.Fence) ([]fencing.Fence, error) {
	if len(fences) == 0 {
		return nil, fmt.Errorf("%w: no fences", ErrOption)
	}
	for _, f := range fences {
		if err := f.Validate(); err != nil {
			return nil, err
		}
	}
	if len(fences) == 1 {
		return fences, nil
	}
	sorted := slices.SortedFunc(slices.Values(fences), byResource)
	for i, f := range sorted[1:] {
		if f.Resource == sorted[i].Resource {
			return nil, fmt.Errorf("%w: two fences of one resource, %v and %v", ErrOption, sorted[i], f)
		}
	}
	return sorted, nil
}

func onlyReads(fences []fencing.Fence) bool {
	return !slices.ContainsFunc(fences, func(f fencing.Fence) bool { return f.Mode == fencing.Write })
}

func byResource(a, b fencing.Fence) int { return strings.Compare(a.Resource, b.Resource) }

// list formats fences for an error.
func list(fences []fencing.Fence) string {
	texts := make([]string, len(fences))
	for i, f := range fences {
		texts[i] = f.String()
	}
	return strings.Join(texts, ", ")
}

func (g *Guard) do(
	ctx context.Context, db Database, fences []fencing.Fence, work func(context.Context, Transaction) error,
) error {
	reading := onlyReads(fences)
	if err := db.RefuseOpen(ctx, reading); err != nil {
		return err
	}
	if reading {
		if err := retryConflicts(ctx, func() error { return g.claimReads(ctx, db, fences) }); err != nil {
			return err
		}
	}
	var tx marked
	err := retryConflicts(ctx, func() (err error) {
		if reading {
			tx, err = g.snapshot(ctx, db, fences)
		} else {
			tx, err = g.claimed(ctx, db, fences)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it does nothing
	judged := func(inside context.Context, t Transaction) error {
		if err := work(inside, t); err != nil {
			return g.failedIn(ctx, tx, err)
		}
		return nil
	}
	if reading {
		err = g.onlyReading(ctx, tx, fences, judged)
	} else {
		err = g.inSection(ctx, tx.Transaction, fences, judged)
	}
	if err != nil {
		return err
	}
	return g.commit(ctx, tx)
}

// failedIn is the error of work in tx that has returned err. Work may go on after an error and return it later: what it
// did after the end of its transaction was committed statement by statement, unchecked.
func (g *Guard) failedIn(ctx context.Context, tx marked, err error) error {
	stopped := g.stoppedAt(ctx, tx, err)
	if !errors.Is(g.requireMark(ctx, tx), ErrTransactionEnded) || stopped {
		return err
	}
	return fmt.Errorf("%w: %w", ErrTransactionEnded, err)
}

// stoppedAt reports whether err ends a transaction in MySQL or MariaDB, and was the end of the work's last statement.
// Then nothing came after it, although the mark has gone with the transaction. The server keeps the error of a
// connection's last statement. Two errors in err are of two statements: the work went on after the first.
func (g *Guard) stoppedAt(ctx context.Context, tx marked, err error) bool {
	returned := slices.Collect(codesOf(err))
	if g.dialect != MySQL || len(returned) != 1 || !IsConflict(err) && returned[0].number != lockWaitTimeout {
		return false
	}
	var last code
	var level string
	shown := tx.QueryRowContext(ctx, "SHOW ERRORS LIMIT 1").Scan(&level, &last.number, &last.text)
	return shown == nil && last.number == returned[0].number
}

// claimed begins a transaction that has claimed all fences.
//
// In MySQL and MariaDB, transactions that wait for a row whose insert is rolled back lock the gap that it leaves.
// An insert into a locked gap waits. A claim that inserts could wait there against the order of the resources, with
// other rows locked. So claims update, which locks no gap, and rows that are missing are made before.
func (g *Guard) claimed(ctx context.Context, db Database, fences []fencing.Fence) (marked, error) {
	if g.dialect == MySQL && len(fences) > 1 {
		tx, err := g.begin(ctx, db, false, func(tx marked) error {
			return g.claimAll(ctx, tx, fences, g.statements.claimPresent)
		})
		if !errors.Is(err, ErrNoVerdict) {
			return tx, err
		}
		if err := g.makeRows(ctx, db, fences); err != nil {
			return marked{}, err
		}
	}
	return g.begin(ctx, db, false, func(tx marked) error {
		return g.claimAll(ctx, tx, fences, g.statements.claim)
	})
}

// claimAll claims fences one after the other. In PostgreSQL the first claim marks the transaction and bounds how long
// it may be idle.
func (g *Guard) claimAll(ctx context.Context, tx marked, fences []fencing.Fence, claim byMode) error {
	with := arguments{alone: onlyReads(fences), idle: idleLimit(ctx, fences), mark: tx.mark}
	statements := claim
	if g.dialect == PostgreSQL {
		statements = g.statements.claimMarking
	}
	for _, f := range fences {
		with.fence = f
		if err := g.check(ctx, tx, statements.of(f.Mode), with, fencing.Registers.Check); err != nil {
			return err
		}
		statements = claim
	}
	return nil
}

// makeRows inserts the guard rows that are missing. Each insert commits by itself, so that it keeps no lock.
func (g *Guard) makeRows(ctx context.Context, db Session, fences []fencing.Fence) error {
	for _, f := range fences {
		err := retryConflicts(ctx, func() error {
			return g.check(ctx, db, g.statements.derive, arguments{fence: f}, fencing.Registers.CheckDerived)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// claimReads claims read fences in a transaction of its own. One claim is a transaction by itself.
func (g *Guard) claimReads(ctx context.Context, db Database, fences []fencing.Fence) error {
	if len(fences) == 1 {
		return g.claim(ctx, db, fences[0])
	}
	tx, err := g.claimed(ctx, db, fences)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	return g.commit(ctx, tx)
}

// snapshot begins a read-only transaction and checks read fences again, in the snapshot of the work. The snapshot has
// to show each claim: then it also shows every older write, because none was accepted after the claim.
func (g *Guard) snapshot(ctx context.Context, db Database, fences []fencing.Fence) (marked, error) {
	return g.begin(ctx, db, true, func(tx marked) error {
		statement := g.statements.recheck
		for _, f := range fences {
			seen, err := g.registers(ctx, tx, statement, arguments{fence: f, mark: tx.mark})
			if err != nil {
				return err
			}
			if err := seen.Check(f); err != nil {
				return err
			}
			if seen.MaxRead < f.Token {
				return fmt.Errorf("%w: %v, the newest read in its snapshot is %d",
					ErrClaimNotVisible, f, uint64(seen.MaxRead))
			}
			statement = g.statements.registers
		}
		return nil
	})
}

// begin begins a transaction that check has passed.
func (g *Guard) begin(ctx context.Context, db Database, readOnly bool, check func(marked) error) (marked, error) {
	begun, err := db.Begin(ctx, readOnly)
	if err != nil {
		return marked{}, beginError(g.dialect, err)
	}
	tx := marked{begun, newMark(g.dialect)}
	if err = check(tx); err == nil {
		err = g.setMark(ctx, tx)
	}
	if err != nil {
		_ = tx.Rollback(ctx)
	}
	return tx, err
}

// activeTransaction is the SQLSTATE for a transaction that is already under way.
const activeTransaction = "25001"

// beginError is the error of a transaction that could not begin because of err.
func beginError(d Dialect, err error) error {
	inside := sqlState(err) == activeTransaction ||
		d == SQLite && strings.Contains(err.Error(), "within a transaction")
	if inside {
		return fmt.Errorf("%w: %w", ErrInTransaction, err)
	}
	return fmt.Errorf("sqlguard: begin: %w", err)
}

// commit commits tx if it is still the transaction that was checked.
func (g *Guard) commit(ctx context.Context, tx marked) error {
	if err := g.requireMark(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return failed("commit", err)
	}
	return nil
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
	Transaction
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
		return failed("commit", err)
	}
}

// failed is the error of a step in the transaction of work.
func failed(step string, err error) error {
	if errors.Is(err, ErrTransactionEnded) {
		return err
	}
	return fmt.Errorf("sqlguard: %s: %w", step, err)
}

func requireSetting(ctx context.Context, tx marked) error {
	var mark string
	if err := tx.QueryRowContext(ctx, selectMark).Scan(&mark); err != nil {
		return failed("commit", err)
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

// withCause returns err with the cause of ctx's end, if err comes from that end: drivers know no causes, and
// database/sql reports of the commit only that the transaction has been rolled back.
func withCause(ctx context.Context, err error) error {
	ended := errors.Is(err, sql.ErrTxDone) || errors.Is(err, context.Canceled)
	if ctx.Err() != nil && ended && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", err, errs.Cause(ctx))
	}
	return errs.WithCause(ctx, err)
}

// section is the work of a write under Do. Its transaction holds the locks of the guard rows of all its fences, so a
// claim of one of these resources in another transaction waits until the section has ended.
type section struct {
	guard  *Guard
	fences []fencing.Fence
	tx     Transaction
	over   atomic.Bool // the work has returned
	outer  *section
}

// sectionKey is the context key of the innermost *section.
type sectionKey struct{}

func innermostSection(ctx context.Context) *section {
	s, _ := ctx.Value(sectionKey{}).(*section)
	return s
}

// inSection runs work under a context that belongs to the section of tx.
func (g *Guard) inSection(
	ctx context.Context, tx Transaction, fences []fencing.Fence, work func(context.Context, Transaction) error,
) error {
	s := &section{guard: g, fences: fences, tx: tx, outer: innermostSection(ctx)}
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
		if s.guard.table == g.table && s.guard.dialect == g.dialect && !s.over.Load() && s.has(resource) {
			return s
		}
	}
	return nil
}

func (s *section) has(resource string) bool {
	return slices.ContainsFunc(s.fences, func(f fencing.Fence) bool { return f.Resource == resource })
}

// nestedIn is the error of a claim of resource that would wait for s.
func nestedIn(s *section, resource string) error {
	return fmt.Errorf("sqlguard: %w: %q in table %s, whose write has a transaction to be used",
		ErrNested, resource, s.guard.table)
}

// onlyReading runs the work of a read in tx, and returns an error if it has written.
//
// SQLite has no read-only transactions. Its PRAGMA query_only would refuse the write itself, but belongs to the
// connection: database/sql rolls back and gives the connection to the next user at the moment in which the context
// ends, and there is no statement between. So the counters decide, which leave no state behind.
func (g *Guard) onlyReading(
	ctx context.Context, tx marked, fences []fencing.Fence, work func(context.Context, Transaction) error,
) error {
	if g.dialect != SQLite {
		return work(ctx, tx.Transaction)
	}
	before, err := changesOf(ctx, tx)
	if err != nil {
		return err
	}
	if err := work(ctx, tx.Transaction); err != nil {
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
		return fmt.Errorf("%w: %v: rolled back", ErrReadOnly, list(fences))
	}
	return nil
}

const (
	minIdle = time.Second                      // below it, a slow network would look like a pause
	maxIdle = math.MaxInt32 * time.Millisecond // PostgreSQL's
)

// idleLimit returns the least time that the leases behind ctx's fences, and ctx itself, have left; 0 if none of them
// has a deadline.
func idleLimit(ctx context.Context, fences []fencing.Fence) time.Duration {
	limit, bounded := maxIdle, false
	until := func(deadline time.Time, ok bool) {
		if ok {
			limit, bounded = min(limit, time.Until(deadline)), true
		}
	}
	until(ctx.Deadline())
	for _, f := range fences {
		until(fencing.Deadline(ctx, f.Resource))
	}
	if !bounded {
		return 0
	}
	return max(limit, minIdle)
}

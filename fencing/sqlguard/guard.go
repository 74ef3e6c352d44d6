package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/errs"
)

// Guard checks fences against the registers in its table. It holds no connection and no state, and is safe for
// concurrent use. The zero value refuses every call with [ErrOption]; create a Guard with New.
type Guard struct {
	dialect    Dialect
	table      string // quoted
	statements statements
}

// Option configures a [Guard].
type Option func(*config)

type config struct{ table string }

// WithTable names the guard table, fencelock_guard otherwise: "table" or "schema.table" in lower case, digits and
// underscores. It is the developer's choice and never comes from a request; still, a name that is not an identifier is
// [ErrTable].
func WithTable(name string) Option { return func(c *config) { c.table = name } }

// New returns a guard for databases of this dialect. It opens nothing; a dialect
// that does not exist and a nil option are [ErrOption].
func New(dialect Dialect, opts ...Option) (*Guard, error) {
	if err := dialect.validate(); err != nil {
		return nil, err
	}
	c := config{table: "fencelock_guard"}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: it is nil", ErrOption)
		}
		opt(&c)
	}
	table, err := quoteTable(dialect, c.table)
	if err != nil {
		return nil, err
	}
	return &Guard{dialect: dialect, table: table, statements: newStatements(dialect, table)}, nil
}

func newStatements(d Dialect, table string) statements {
	compiled := func(text string) statement { return compile(d, table, text) }
	s := statements{
		claim:     byMode{compiled(conflictClaimRead), compiled(conflictClaimWrite)},
		derive:    compiled(conflictDerive),
		registers: compiled(selectRegisters),
		recheck:   compiled(selectRegisters),
	}
	switch d {
	case PostgreSQL:
		s.claimMarking = byMode{compiled(markingClaimRead), compiled(markingClaimWrite)}
		s.recheck = compiled(markingRegisters)
		s.claimOrFail = byMode{compiled(failingClaimRead), compiled(failingClaimWrite)}
	case MySQL:
		s.claim = byMode{compiled(duplicateClaimRead), compiled(duplicateClaimWrite)}
		s.claimPresent = byMode{compiled(presentClaimRead), compiled(presentClaimWrite)}
		s.derive = compiled(duplicateDerive)
	}
	return s
}

// compile turns named parameters into the dialect's. PostgreSQL and SQLite have
// numbered ones, so each argument is sent once; MySQL's are in the order of the text.
func compile(d Dialect, table, text string) statement {
	var s statement
	numbers := map[string]int{}
	s.text = parameter.ReplaceAllStringFunc(strings.ReplaceAll(text, "{table}", table), func(name string) string {
		if d == MySQL {
			s.order = append(s.order, name)
			return "?"
		}
		if numbers[name] == 0 {
			s.order = append(s.order, name)
			numbers[name] = len(s.order)
		}
		if d == PostgreSQL {
			return fmt.Sprintf("$%d", numbers[name])
		}
		return fmt.Sprintf("?%d", numbers[name])
	})
	return s
}

// refuseZero returns an error for a guard that was not made by New: its statements are empty.
func (g *Guard) refuseZero() error {
	if g == nil || g.dialect == 0 {
		return fmt.Errorf("%w: the zero Guard, make it with New", ErrOption)
	}
	return nil
}

// Claim checks f in the transaction tx and raises its register: a [fencing.Read] is accepted while its token is at
// least the newest write's, a [fencing.Write] while it is at least the newest read's too. On refusal, it returns a
// [*fencing.StaleError]; roll back. For an invalid f it returns the error of [fencing.Fence.Validate], and sends
// nothing.
//
// Make it the first statement of tx. It locks the resource's guard row until tx ends, so all later reads and writes of
// tx are one step with the check, at READ COMMITTED or any stronger level. A transaction that reads before the claim
// may act on data from before the check.
//
// A rollback takes the raised register back: discard what the transaction has read.
//
// Given a *[sql.DB] instead of a transaction it commits at once, to claim before the first read when the work is not in
// the database or not in one transaction; in MySQL it begins and ends a transaction for that, two round trips more.
// Given a *[sql.Conn] it is a part of the transaction that is under way there.
//
// Claims of one resource wait for each other's transactions, even claims of readers; readers that must not wait use
// [Guard.Do].
//
// Inside a write under [Guard.Do] on the same resource, and its context, a *sql.DB or another transaction is
// [ErrNested].
//
// On MySQL the connection's LAST_INSERT_ID() changes.
func (g *Guard) Claim(ctx context.Context, tx Tx, f fencing.Fence) error {
	if err := refuseRewriting(tx); err != nil {
		return err
	}
	return g.claim(ctx, session{tx}, f)
}

func (g *Guard) claim(ctx context.Context, tx Session, f fencing.Fence) error {
	if err := g.allowed(ctx, tx, f); err != nil {
		return err
	}
	return g.check(ctx, tx, g.statements.claim.of(f.Mode), arguments{fence: f}, fencing.Registers.Check)
}

// Derive is [Guard.Claim] for storing a value that was derived from a read, such as a row of a cache table: it is
// accepted while nothing newer has been written, it raises no register, and newer readers do not matter. Until tx ends
// nothing newer is written, so a value that tx stores is never outdated when it becomes visible.
func (g *Guard) Derive(ctx context.Context, tx Tx, f fencing.Fence) error {
	if err := refuseRewriting(tx); err != nil {
		return err
	}
	return g.deriveFrom(ctx, session{tx}, f)
}

func (g *Guard) deriveFrom(ctx context.Context, tx Session, f fencing.Fence) error {
	if err := g.allowed(ctx, tx, f); err != nil {
		return err
	}
	return g.check(ctx, tx, g.statements.derive, arguments{fence: f}, fencing.Registers.CheckDerived)
}

// allowed makes the checks that need no database.
func (g *Guard) allowed(ctx context.Context, tx Session, f fencing.Fence) error {
	if err := g.refuseZero(); err != nil {
		return err
	}
	if err := f.Validate(); err != nil {
		return err
	}
	return g.refuseNested(ctx, tx, f.Resource)
}

// refuseNested returns an error if a claim of resource through handle waits for the section that ctx belongs to. It
// does so only if handle is certainly not part of the section's transaction.
func (g *Guard) refuseNested(ctx context.Context, handle Session, resource string) error {
	if s := g.sectionOf(ctx, resource); s != nil && !handle.MayBeIn(s.tx) {
		return nestedIn(s, resource)
	}
	return nil
}

// Statement returns a statement that claims f as [Guard.Claim] does, for handles outside database/sql.
//
// In PostgreSQL it fails if f is refused, and [Guard.StatementError] names the error. So it can be the first statement
// of a pgx.Batch, in a transaction or on a pool: after a refusal nothing of the batch is carried out.
//
// In SQLite f is accepted if the statement has changed a row. In MySQL f is accepted if the insert id in the reply,
// less one, is in the range from 0 to the token. Any other result, including MySQL's insert id 0, is a refusal. There a
// refusal is no error: use the statement in a transaction, and read its answer before the next statement is sent.
func (g *Guard) Statement(f fencing.Fence) (query string, args []any, err error) {
	if err := g.refuseZero(); err != nil {
		return "", nil, err
	}
	if err := f.Validate(); err != nil {
		return "", nil, err
	}
	claim := g.statements.claim
	if g.dialect == PostgreSQL {
		claim = g.statements.claimOrFail
	}
	s := claim.of(f.Mode)
	return s.text, s.args(arguments{fence: f}), nil
}

// invalidText is the SQLSTATE of a text that is no number.
const invalidText = "22P02"

// StatementError returns the error of [Guard.Statement] in PostgreSQL, or of the batch that it was in, so that it
// matches [fencing.ErrStale] if f was refused. Any other error is returned as it is.
func (g *Guard) StatementError(f fencing.Fence, err error) error {
	if sqlState(err) == invalidText && strings.Contains(err.Error(), refusalText) {
		return fmt.Errorf("%w: %v: %w", fencing.ErrStale, f, err)
	}
	return err
}

// Seen returns the registers of a resource, zero if it was never claimed.
func (g *Guard) Seen(ctx context.Context, tx Tx, resource string) (fencing.Registers, error) {
	if err := refuseRewriting(tx); err != nil {
		return fencing.Registers{}, err
	}
	return g.seen(ctx, session{tx}, resource)
}

func (g *Guard) seen(ctx context.Context, tx Session, resource string) (fencing.Registers, error) {
	if err := g.refuseZero(); err != nil {
		return fencing.Registers{}, err
	}
	return g.registers(ctx, tx, g.statements.registers, arguments{fence: fencing.Fence{Resource: resource}})
}

func (g *Guard) registers(
	ctx context.Context, tx Session, s statement, with arguments,
) (seen fencing.Registers, err error) {
	if db := unbound(g.dialect, tx); db != nil {
		err = apart(ctx, db, func(tx Session) error {
			seen, err = g.registers(ctx, tx, s, with)
			return err
		})
		return seen, err
	}
	err = tx.QueryRowContext(ctx, s.text, s.args(with)...).Scan(&seen.MaxWrite, &seen.MaxRead)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fencing.Registers{}, withCause(ctx, fmt.Errorf("sqlguard: registers of %q: %w", with.fence.Resource, err))
	}
	return seen, nil
}

// outOfRange is the SQLSTATE of MySQL's error 1690: a register that cannot be incremented.
const outOfRange = "22003"

type rule func(fencing.Registers, fencing.Fence) error

// check runs a statement that checks the fence and raises the register. by only supplies the error of a refusal.
func (g *Guard) check(ctx context.Context, tx Session, s statement, with arguments, by rule) error {
	if db := unbound(g.dialect, tx); db != nil {
		with.alone = true
		return apart(ctx, db, func(tx Session) error { return g.check(ctx, tx, s, with, by) })
	}
	f := with.fence
	result, err := tx.ExecContext(ctx, s.text, s.args(with)...)
	switch {
	case err != nil && g.dialect == MySQL && sqlState(err) == outOfRange:
		return fmt.Errorf("%w: check %v: a register is larger than any token: %w", ErrNoVerdict, f, err)
	case err != nil:
		return withCause(ctx, fmt.Errorf("sqlguard: check %v: %w", f, err))
	}
	if g.dialect == MySQL {
		return checkInsertID(result, f)
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("sqlguard: check %v: %w", f, err)
	}
	if changed > 0 {
		return nil
	}
	seen, err := g.seen(ctx, tx, f.Resource)
	if err != nil {
		return errs.Join(fmt.Errorf("%w: %v", fencing.ErrStale, f), err)
	}
	if err := by(seen, f); err != nil {
		return err
	}
	// The row was deleted in the meantime. That does not reverse the verdict.
	return fmt.Errorf("%w: %v, and its registers went back", fencing.ErrStale, f)
}

// checkInsertID interprets MySQL's verdict: the insert id, less one, is the greatest token that the fence must not be
// older than.
func checkInsertID(result sql.Result, f fencing.Fence) error {
	id, err := result.LastInsertId()
	switch seen := fencing.Token(id - 1); {
	case err != nil:
		return fmt.Errorf("sqlguard: check %v: %w", f, err)
	case id < 1:
		return fmt.Errorf("%w: check %v: insert id %d", ErrNoVerdict, f, id)
	case seen > f.Token:
		return &fencing.StaleError{Resource: f.Resource, Got: f.Token, Seen: seen}
	}
	return nil
}

// Native returns the guard for handles of a driver that is used without database/sql.
func (g *Guard) Native() Native { return Native{g} }

// 63 bytes is PostgreSQL's limit, which cuts longer names without an error;
// MySQL's is 64. Lower case only, because a quoted name with capitals is another
// table than the same name unquoted in PostgreSQL, and on some file systems only
// in MySQL.
var tableName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$`)

// quoteTable returns name as it stands in a statement.
func quoteTable(d Dialect, name string) (string, error) {
	if !tableName.MatchString(name) {
		const rule = "want [schema.]table, each of a-z, 0-9 and _, not beginning with a digit, at most 63 bytes"
		return "", fmt.Errorf("%w %.80q: %s", ErrTable, name, rule)
	}
	quote := `"`
	if d == MySQL {
		quote = "`"
	}
	return quote + strings.ReplaceAll(name, ".", quote+"."+quote) + quote, nil
}

// The resource is bytes in every dialect: a text column would compare by its collation, which may fold case, accents
// and trailing spaces, and PostgreSQL's cannot hold NUL. 512 bytes fit every index, 767 bytes being the least that
// InnoDB allows.
var schemas = map[Dialect]string{
	// The free half of each page keeps updates of a row within it, without touching the index.
	PostgreSQL: `CREATE TABLE IF NOT EXISTS {table} (
	resource  BYTEA  NOT NULL PRIMARY KEY,
	max_write BIGINT NOT NULL,
	max_read  BIGINT NOT NULL
) WITH (fillfactor = 50)`,

	MySQL: `CREATE TABLE IF NOT EXISTS {table} (
	resource  VARBINARY(512) NOT NULL PRIMARY KEY,
	max_write BIGINT NOT NULL,
	max_read  BIGINT NOT NULL,
	claims    BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB`,

	SQLite: `CREATE TABLE IF NOT EXISTS {table} (
	resource  BLOB    NOT NULL PRIMARY KEY,
	max_write INTEGER NOT NULL,
	max_read  INTEGER NOT NULL
) WITHOUT ROWID`,
}

// Schema returns the statement that creates the guard table unless it exists. Its columns are resource (the name's
// bytes), max_write and max_read, and in MySQL claims, which only has to change.
//
// A row must stay as long as a holder may still present an old token for its resource, and must be restored from an
// older backup only together with the data. docs/fencing-sql.md has the statement that deletes older rows.
func (g *Guard) Schema() string {
	return strings.ReplaceAll(schemas[g.dialect], "{table}", g.table)
}

// Create runs [Guard.Schema]. Processes that start together should not all call it: PostgreSQL may report a duplicate
// to one of them.
func (g *Guard) Create(ctx context.Context, db Tx) error { return g.create(ctx, session{db}) }

func (g *Guard) create(ctx context.Context, db Session) error {
	if err := g.refuseZero(); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, g.Schema()); err != nil {
		return fmt.Errorf("sqlguard: create table %s: %w", g.table, err)
	}
	return nil
}

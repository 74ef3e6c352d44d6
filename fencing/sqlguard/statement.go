package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// statement is a text with the dialect's placeholders, and the argument that each of them stands for.
type statement struct {
	text  string
	order []string
}

// arguments are the values of a statement's placeholders. Only the statements of [Guard.Do] have the last two.
type arguments struct {
	fence fencing.Fence
	alone bool          // nothing but claims of reads is in the transaction
	idle  time.Duration // how long the transaction may be idle, 0 without a limit
	mark  string
}

// args returns the arguments in the order of the placeholders.
func (s statement) args(with arguments) []any {
	args := make([]any, len(s.order))
	for i, name := range s.order {
		switch name {
		case ":resource":
			args[i] = []byte(with.fence.Resource)
		case ":token":
			args[i] = int64(with.fence.Token)
		case ":count":
			args[i] = int64(1)
			if with.alone {
				args[i] = int64(0)
			}
		case ":idle":
			args[i] = with.idle.Milliseconds()
		case ":mark":
			args[i] = with.mark
		}
	}
	return args
}

var parameter = regexp.MustCompile(`:(resource|token|count|idle|mark)\b`)

// statements are all statements of a Guard, except for the ones that mark a transaction.
type statements struct {
	claim             byMode
	derive, registers statement
	// recheck is registers as the first statement of a read's snapshot. In PostgreSQL it marks the transaction.
	recheck statement
	// claimMarking is PostgreSQL's claim as the first statement of Do's transaction: it marks the transaction and bounds
	// how long it may be idle. The other databases have no such limit for a transaction.
	claimMarking byMode
	// claimOrFail is PostgreSQL's claim that fails if the fence is refused.
	claimOrFail byMode
	// claimPresent is MySQL's claim of a row that exists: it inserts none, and then its answer is no verdict.
	claimPresent byMode
}

// byMode are the statements of claims.
type byMode struct{ read, write statement }

func (b *byMode) of(mode fencing.Mode) statement {
	if mode == fencing.Write {
		return b.write
	}
	return b.read
}

const selectRegisters = `SELECT max_write, max_read FROM {table} WHERE resource = :resource`

// In PostgreSQL and SQLite an upsert changes no row if its WHERE does not hold, and it counts a row that had the
// written value already: the number of rows affected is the verdict. PostgreSQL, after waiting for another transaction
// on the row, decides by the values that the other one has committed, at any isolation level, or fails with a
// serialization error.
const (
	conflictClaimRead = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, 0, :token)
` + raiseRead

	raiseRead = `ON CONFLICT (resource) DO UPDATE
SET max_read = CASE WHEN guard.max_read < excluded.max_read THEN excluded.max_read ELSE guard.max_read END
WHERE guard.max_write <= excluded.max_read`

	conflictClaimWrite = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, :token, 0)
` + raiseWrite

	raiseWrite = `ON CONFLICT (resource) DO UPDATE SET max_write = excluded.max_write
WHERE guard.max_write <= excluded.max_write AND guard.max_read <= excluded.max_write`

	// It writes only to lock the row, or to insert a row that can be locked.
	conflictDerive = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, 0, 0)
ON CONFLICT (resource) DO UPDATE SET max_read = guard.max_read
WHERE guard.max_write <= :token`
)

// A batch is sent as a whole, and a claim that changes no row would not keep the statements after it from being carried
// out. One that fails does. The cast depends on the count, or the planner would make it, and fail, before the claim.
const (
	failingClaimRead  = claimAs + conflictClaimRead + orFail
	failingClaimWrite = claimAs + conflictClaimWrite + orFail

	claimAs = `WITH claim AS (
`
	orFail = `
RETURNING 1)
SELECT CASE count(*)
WHEN 0 THEN CAST('` + refusalText + ` ' || count(*) AS BIGINT) ELSE 1 END FROM claim`

	refusalText = "fencelock stale token, rows that it changed"
)

// One more statement would cost a round trip, so the check itself makes the settings that end with its transaction (the
// third argument of set_config). A shorter limit that is set already stays; 0 is none.
const (
	markingClaimRead = `INSERT INTO {table} AS guard (resource, max_write, max_read)
SELECT :resource::bytea, 0, :token::bigint
` + fromMarks + raiseRead

	markingClaimWrite = `INSERT INTO {table} AS guard (resource, max_write, max_read)
SELECT :resource::bytea, :token::bigint, 0
` + fromMarks + raiseWrite

	fromMarks = `FROM set_config('fencelock.mark', :mark::text, true) AS mark,
set_config('idle_in_transaction_session_timeout', (
	SELECT CASE WHEN :idle::bigint = 0 OR own BETWEEN 1 AND :idle::bigint THEN own ELSE :idle::bigint END::text
	FROM (SELECT (extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::bigint
		AS own) AS limits
), true) AS idle
`

	// Without a row there is no mark: such a read is refused.
	markingRegisters = selectRegisters + ` AND set_config('fencelock.mark', :mark::text, true) = :mark::text`
)

// MySQL's number of rows affected does not distinguish a refusal from an equal token: 0 for both, or 1 for both if the
// client asks for found rows. So the statement answers with the register that decides: LAST_INSERT_ID(x) returns x and
// puts it into the reply as the insert id. One is added, also for a new row's register, so that an insert id of 0 is no
// verdict at all.
//
// The value of LAST_INSERT_ID(x) has to be stored, or compared with a value that the server knows only when it
// executes: MySQL 9 does not evaluate a comparison that it can decide before. The lock of the row is held in either
// case.
//
// Where several servers take writes (Galera, group replication), the lock holds on one of them only. There the commit
// compares which rows the transactions have changed, and a row that keeps its values does not count. So a claim that
// more may follow in its transaction changes the row also if it raises nothing: the column claims counts it. The claim
// of a read that commits by itself changes the row only if it raises the register, so that reads are no writes.
const (
	duplicateClaimRead = `INSERT INTO {table} (resource, max_write, max_read)
VALUES (:resource, LAST_INSERT_ID(1) - 1, :token)
ON DUPLICATE KEY UPDATE ` + setMaxRead

	presentClaimRead = `UPDATE {table} SET ` + setMaxRead + ` WHERE resource = :resource`

	setMaxRead = `claims = claims + :count,
max_read = IF(LAST_INSERT_ID(max_write + 1) <= :token + 1, GREATEST(max_read, :token), max_read)`

	duplicateClaimWrite = `INSERT INTO {table} (resource, max_write, max_read)
VALUES (:resource, :token, LAST_INSERT_ID(1) - 1)
ON DUPLICATE KEY UPDATE ` + setMaxWrite

	presentClaimWrite = `UPDATE {table} SET ` + setMaxWrite + ` WHERE resource = :resource`

	setMaxWrite = `claims = claims + 1,
max_write = IF(LAST_INSERT_ID(GREATEST(max_write, max_read) + 1) <= :token + 1, :token, max_write)`

	duplicateDerive = `INSERT INTO {table} (resource, max_write, max_read)
VALUES (:resource, LAST_INSERT_ID(1) - 1, 0)
ON DUPLICATE KEY UPDATE claims = claims + 1, max_write = LAST_INSERT_ID(max_write + 1) - 1`
)

// CheckUpdate judges an UPDATE of one row that carries its own fence:
//
//	result, err := tx.ExecContext(ctx,
//		`UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2`, ...)
//	err = sqlguard.PostgreSQL.CheckUpdate(ctx, tx, f, result, `SELECT fence FROM accounts WHERE id = $1`, id)
//
// MySQL's count leaves out a row that had the new values already, so there the statement has to report that it found
// the row:
//
//	UPDATE accounts SET balance = ?, fence = LAST_INSERT_ID(?) WHERE id = ? AND fence <= ?
//
// If a row was changed, CheckUpdate returns nil and sends nothing. If none was, it decides by lookup, a statement that
// selects only the row's fence and has no locking clause: a newer fence is a [*fencing.StaleError]; otherwise no row
// met the statement's conditions, which is [ErrNoRow]. In MySQL, a statement that has no LAST_INSERT_ID, or has a
// further condition, and that changed no row while the row has this very token, is [ErrNoVerdict].
//
// The fence column is BIGINT NOT NULL, and a row that has one is never deleted: a deleted row loses the token of its
// last writer. Mark it as deleted instead, by an UPDATE.
func (d Dialect) CheckUpdate(
	ctx context.Context, tx Tx, f fencing.Fence, result sql.Result, lookup string, args ...any,
) error {
	return d.checkUpdate(ctx, session{tx}, f, result, lookup, args)
}

func (d Dialect) checkUpdate(
	ctx context.Context, tx Session, f fencing.Fence, result sql.Result, lookup string, args []any,
) error {
	changed, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("sqlguard: update under %v: %w", f, err)
	}
	if changed > 0 || d == MySQL && foundRow(result, f) {
		return nil
	}
	seen, err := d.fenceOf(ctx, tx, f, lookup, args)
	switch {
	case err != nil:
		return err
	case d == MySQL && seen == f.Token:
		return fmt.Errorf("%w: no row changed under %v, whose token the row has: fence = LAST_INSERT_ID(?) would tell "+
			"an unmet condition from values that were there already", ErrNoVerdict, f)
	default:
		return fmt.Errorf("%w that meets the conditions of an update under %v", ErrNoRow, f)
	}
}

// foundRow reports whether an UPDATE with LAST_INSERT_ID(token) found a row: the server evaluates it for each row that
// it writes, and puts it into the reply.
func foundRow(result sql.Result, f fencing.Fence) bool {
	id, err := result.LastInsertId()
	return err == nil && id > 0 && fencing.Token(id) == f.Token
}

// CheckUpsert is [Dialect.CheckUpdate] for a statement that inserts the row if there is none and updates it only if its
// fence is not newer. In PostgreSQL and SQLite:
//
//	INSERT INTO accounts (id, balance, fence) VALUES ($1, $2, $3)
//	ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
//	WHERE accounts.fence <= excluded.fence
//
// In MySQL each column decides for itself, with no further condition:
//
//	INSERT INTO accounts (id, balance, fence) VALUES (?, ?, ?)
//	ON DUPLICATE KEY UPDATE
//	balance = IF(fence <= VALUES(fence), VALUES(balance), balance), fence = GREATEST(fence, VALUES(fence))
//
// There the count proves nothing, so CheckUpsert always looks the fence up. Run it in a transaction and roll back on an
// error: a column without its IF was written even though the fence is refused.
//
// The stale upsert of a row that was deleted is an insert like any other and is accepted. Rows that are upserted are
// marked as deleted, never deleted; or their lock is checked by the guard table.
func (d Dialect) CheckUpsert(
	ctx context.Context, tx Tx, f fencing.Fence, result sql.Result, lookup string, args ...any,
) error {
	return d.checkUpsert(ctx, session{tx}, f, result, lookup, args)
}

func (d Dialect) checkUpsert(
	ctx context.Context, tx Session, f fencing.Fence, result sql.Result, lookup string, args []any,
) error {
	if d != MySQL {
		changed, err := result.RowsAffected()
		if err != nil {
			return fmt.Errorf("sqlguard: upsert under %v: %w", f, err)
		}
		if changed > 0 {
			return nil
		}
	}
	seen, err := d.fenceOf(ctx, tx, f, lookup, args)
	switch {
	case err != nil:
		return err
	case d == MySQL && seen == f.Token:
		return nil
	default:
		return fmt.Errorf("%w that meets the conditions of an upsert under %v", ErrNoRow, f)
	}
}

// fenceOf returns the current fence of the row, or the error that refuses f.
func (d Dialect) fenceOf(
	ctx context.Context, tx Session, f fencing.Fence, lookup string, args []any,
) (seen fencing.Token, err error) {
	if db := unbound(d, tx); db != nil {
		err = apart(ctx, db, func(tx Session) error {
			seen, err = d.fenceOf(ctx, tx, f, lookup, args)
			return err
		})
		return seen, err
	}
	if d == MySQL {
		// A plain SELECT at REPEATABLE READ would read the transaction's snapshot, which may be older than the row that
		// refused the statement before.
		lookup += " FOR UPDATE"
	}
	var column sql.Null[fencing.Token]
	err = tx.QueryRowContext(ctx, lookup, args...).Scan(&column)
	switch {
	case errors.Is(err, fencing.ErrMalformed):
		return 0, fmt.Errorf("%w: the row's fence is no token, for %v; is the column a BIGINT? %w", ErrNoVerdict, f, err)
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("%w for %v, or none any more", ErrNoRow, f)
	case err != nil:
		return 0, withCause(ctx, fmt.Errorf("sqlguard: look up the fence for %v: %w", f, err))
	case !column.Valid:
		return 0, fmt.Errorf("%w: the row's fence is NULL, for %v", ErrNoVerdict, f)
	case column.V > f.Token:
		return 0, &fencing.StaleError{Resource: f.Resource, Got: f.Token, Seen: column.V}
	}
	return column.V, nil
}

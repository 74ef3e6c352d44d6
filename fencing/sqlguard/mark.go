package sqlguard

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"

	"github.com/seed74116694/fencelock/fencing"
)

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

func (d Dialect) newMark() string {
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
	err := conn.QueryRowContext(ctx, setProbe, g.dialect.newMark()).Scan(&set)
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

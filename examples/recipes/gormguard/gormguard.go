// Package gormguard is a recipe for GORM: its statements run in the transaction of a guard, and the database refuses
// them if the fence is stale.
package gormguard

import (
	"context"
	"database/sql"
	"errors"

	"gorm.io/gorm"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// Do has the contract of [sqlguard.Guard.Do]. Its work gets a gorm.DB over the transaction, with the context of the
// transaction: a statement of the outer db would be none of the transaction's. A Transaction inside the work is a
// savepoint. Commit, Rollback and DB of the inside handle are errors, and so is Connection, which would take another
// connection.
func Do(
	ctx context.Context, db *gorm.DB, guard *sqlguard.Guard, f fencing.Fence, work func(tx *gorm.DB) error,
) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return guard.Do(ctx, pool, f, func(ctx context.Context, tx *sql.Tx) error {
		inside := db.Session(&gorm.Session{NewDB: true, Context: ctx}) // with a context the Statement is a copy
		inside.Statement.ConnPool = &guarded{tx}
		return work(inside)
	})
}

// guarded is a transaction that the guard ends. GORM knows the pool behind a *sql.Tx, and that of a type with the
// method GetDBConn.
type guarded struct{ *sql.Tx }

var errGuarded = errors.New("gormguard: the guard ends this transaction")

func (*guarded) Commit() error { return errGuarded }

func (*guarded) Rollback() error { return errGuarded }

func (*guarded) GetDBConn() (*sql.DB, error) { return nil, gorm.ErrInvalidDB }

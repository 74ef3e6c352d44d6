package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"go.uber.org/goleak"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/seed74116694/fencelock/examples/recipes/bunguard"
	"github.com/seed74116694/fencelock/examples/recipes/entguard"
	"github.com/seed74116694/fencelock/examples/recipes/gormguard"
	"github.com/seed74116694/fencelock/examples/recipes/sqlcguard"
	"github.com/seed74116694/fencelock/examples/recipes/sqlcguard/bank"
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/pgxguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testpostgres"
	"github.com/seed74116694/fencelock/locktest"
	"github.com/seed74116694/fencelock/rwlock"
)

// depositing adds an amount to account 7, in the transaction of the guard, and runs then inside it.
type depositing func(ctx context.Context, f fencing.Fence, amount int64, then func(context.Context) error) error

// accounts open a database by a library over SQL.
var accounts = map[string]func(t *testing.T, dsn string, db *sql.DB, guard *sqlguard.Guard) depositing{
	"gorm": gormAccounts,
	"ent":  entAccounts,
	"bun":  bunAccounts,
	"sqlc": sqlcAccounts,
}

type gormAccount struct {
	ID      int64
	Balance int64
}

func (gormAccount) TableName() string { return "accounts" }

func gormAccounts(t *testing.T, _ string, pool *sql.DB, guard *sqlguard.Guard) depositing {
	db, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: pool}),
		&gorm.Config{Logger: logger.Discard, PrepareStmt: true})
	require.NoError(t, err)
	return func(ctx context.Context, f fencing.Fence, amount int64, then func(context.Context) error) error {
		return gormguard.Do(ctx, db, guard, f, func(tx *gorm.DB) error {
			err := tx.Transaction(func(tx *gorm.DB) error {
				return tx.Model(&gormAccount{ID: 7}).Update("balance", gorm.Expr("balance + ?", amount)).Error
			})
			if err != nil {
				return err
			}
			return then(tx.Statement.Context)
		})
	}
}

func entAccounts(_ *testing.T, _ string, db *sql.DB, guard *sqlguard.Guard) depositing {
	outer := entsql.OpenDB(dialect.Postgres, db)
	return func(ctx context.Context, f fencing.Fence, amount int64, then func(context.Context) error) error {
		return entguard.Do(ctx, outer, guard, f, func(ctx context.Context, inside dialect.Driver) error {
			// What the generated Account.Update() and a mutation of several tables call.
			id := sqlgraph.NewFieldSpec("id", field.TypeInt64)
			update := sqlgraph.NewUpdateSpec("accounts", []string{"id", "balance"}, id)
			update.AddField("balance", field.TypeInt64, amount)
			update.Predicate = func(s *entsql.Selector) { s.Where(entsql.EQ("id", 7)) }
			tx, err := inside.Tx(ctx)
			if err != nil {
				return err
			}
			if _, err := sqlgraph.UpdateNodes(ctx, inside, update); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			if err := tx.Commit(); err != nil {
				return err
			}
			return then(ctx)
		})
	}
}

type bunAccount struct {
	bun.BaseModel `bun:"table:accounts"`

	ID      int64 `bun:",pk"`
	Balance int64
}

func bunAccounts(_ *testing.T, _ string, pool *sql.DB, guard *sqlguard.Guard) depositing {
	db := bun.NewDB(pool, pgdialect.New())
	return func(ctx context.Context, f fencing.Fence, amount int64, then func(context.Context) error) error {
		return bunguard.Do(ctx, db, guard, f, func(ctx context.Context, tx bun.Tx) error {
			err := tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewUpdate().Model(&bunAccount{ID: 7}).Set("balance = balance + ?", amount).WherePK().Exec(ctx)
				return err
			})
			if err != nil {
				return err
			}
			return then(ctx)
		})
	}
}

func sqlcAccounts(t *testing.T, dsn string, _ *sql.DB, _ *sqlguard.Guard) depositing {
	pool := expect.NoError(pgxpool.New(t.Context(), dsn)).In(t)
	t.Cleanup(pool.Close)
	guard, err := pgxguard.New()
	require.NoError(t, err)
	return func(ctx context.Context, f fencing.Fence, amount int64, then func(context.Context) error) error {
		return sqlcguard.Do(ctx, pool, guard, f, func(ctx context.Context, q *bank.Queries) error {
			if _, err := q.AddToBalance(ctx, bank.AddToBalanceParams{Balance: amount, ID: 7}); err != nil {
				return err
			}
			return then(ctx)
		})
	}
}

// The statements of the library are in the guard's transaction: they are rolled back with the work, with the lock, and
// if the token is stale.
func TestGuardsOfLibraries(t *testing.T) {
	for library, open := range accounts {
		t.Run(library, func(t *testing.T) {
			dsn := postgres.Database(t)
			db := expect.NoError(sql.Open("pgx", dsn)).In(t)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			guard := expect.NoError(sqlguard.New(sqlguard.PostgreSQL)).In(t)
			require.NoError(t, guard.Create(t.Context(), db))
			_, err := db.Exec(`CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL);
				INSERT INTO accounts VALUES (7, 0)`)
			require.NoError(t, err)
			requireGuarded(t, db, guard, open(t, dsn, db, guard))
		})
	}
}

func requireGuarded(t *testing.T, db *sql.DB, guard *sqlguard.Guard, deposit depositing) {
	const ttl = time.Hour // nothing is renewed before the end of the test
	locks := locktest.New(t, rwlock.WithTTL(ttl))
	under := func(locker *rwlock.Locker, amount int64, before func(), then func(context.Context) error) error {
		return locker.Do(t.Context(), name, func(ctx context.Context) error {
			before()
			fence := expect.NoError(fencing.Require(ctx, name)).In(t)
			return deposit(ctx, fence, amount, then)
		})
	}
	requireBalance := func(want int64) {
		t.Helper()
		var balance int64
		require.NoError(t, db.QueryRow(`SELECT balance FROM accounts WHERE id = 7`).Scan(&balance))
		require.Equal(t, want, balance)
	}
	atOnce, nothing := func() {}, func(context.Context) error { return nil }

	require.NoError(t, under(locks.Locker, 10, atOnce, nothing))
	requireBalance(10)

	own := errors.New("own")
	require.ErrorIs(t, under(locks.Locker, 1, atOnce, func(ctx context.Context) error {
		fence := expect.NoError(fencing.Require(ctx, name)).In(t)
		require.ErrorIs(t, guard.Claim(ctx, db, fence), fencing.ErrNested, "the context knows the transaction")
		requireBalance(10)
		return own
	}), own)
	requireBalance(10)

	require.ErrorIs(t, under(locks.Locker, 2, atOnce, func(context.Context) error {
		locks.Lose(name)
		return nil
	}), rwlock.ErrLost)
	requireBalance(10)

	another := locks.Another()
	require.ErrorIs(t, under(locks.Locker, 4, func() {
		locks.Advance(ttl + time.Minute)
		require.NoError(t, under(another, 20, atOnce, nothing))
	}, nothing), fencing.ErrStale)
	requireBalance(30)
}

// What would end GORM's transaction, or leave it, is refused.
func TestGORMStaysInTheTransaction(t *testing.T) {
	for _, prepare := range []bool{false, true} {
		dsn := postgres.Database(t)
		pool := expect.NoError(sql.Open("pgx", dsn)).In(t)
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		guard := expect.NoError(sqlguard.New(sqlguard.PostgreSQL)).In(t)
		require.NoError(t, guard.Create(t.Context(), pool))
		expect.NoError(pool.Exec(`CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL);
			INSERT INTO accounts VALUES (7, 0)`)).In(t)
		db := expect.NoError(gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: pool}),
			&gorm.Config{Logger: logger.Discard, PrepareStmt: prepare})).In(t)
		for way, end := range map[string]func(tx *gorm.DB) error{
			"Commit":     func(tx *gorm.DB) error { return tx.Commit().Error },
			"Rollback":   func(tx *gorm.DB) error { return tx.Rollback().Error },
			"Begin":      func(tx *gorm.DB) error { return tx.Begin().Error },
			"DB":         func(tx *gorm.DB) error { _, err := tx.DB(); return err },
			"Connection": func(tx *gorm.DB) error { return tx.Connection(func(*gorm.DB) error { return nil }) },
		} {
			f, own := fencing.Fence{Resource: way, Token: 5, Mode: fencing.Write}, errors.New("own")
			err := gormguard.Do(t.Context(), db, guard, f, func(tx *gorm.DB) error {
				require.NoError(t, tx.Model(&gormAccount{ID: 7}).Update("balance", 100).Error)
				require.Error(t, end(tx), way)
				return own
			})
			require.Equal(t, own, err, way)
			var balance int64
			require.NoError(t, pool.QueryRow(`SELECT balance FROM accounts WHERE id = 7`).Scan(&balance))
			require.Zero(t, balance, way)
		}
	}
}

// postgres is the server of this run of tests.
var postgres testpostgres.Server

func TestMain(m *testing.M) {
	// GORM's cache of prepared statements cannot be closed.
	goleak.VerifyTestMain(suite{m}, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

type suite struct{ *testing.M }

func (s suite) Run() int {
	defer postgres.Stop()
	return s.M.Run()
}

// patience bounds the wait for an event that never comes.
const patience = time.Minute

// await returns the next value of a channel.
func await[T any](t *testing.T, event string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatalf("no sign of %s after %v", event, patience)
	}
	return value
}

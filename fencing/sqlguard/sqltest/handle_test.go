package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// Handles of other packages fit without adapters.
var (
	_ sqlguard.DB = (*sql.DB)(nil)
	_ sqlguard.DB = (*sql.Conn)(nil)
	_ sqlguard.DB = (*sqlx.DB)(nil)
	_ sqlguard.DB = (*sqlx.Conn)(nil)
	_ sqlguard.Tx = (*sql.Tx)(nil)
	_ sqlguard.Tx = (*sqlx.Tx)(nil)
)

func requireGuards(t *testing.T, guard *sqlguard.Guard, db sqlguard.DB, resource string) {
	t.Helper()
	require.NoError(t, guard.Do(t.Context(), db, write(resource, 5), nothing))
	require.NoError(t, guard.Do(t.Context(), db, read(resource, 6), nothing))
	require.ErrorIs(t, guard.Do(t.Context(), db, write(resource, 5), nothing), fencing.ErrStale)
}

func TestHandlesOfSqlx(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		x := sqlx.NewDb(db, store.Name)
		requireGuards(t, guard, x, "a")

		conn, err := x.Connx(t.Context())
		require.NoError(t, err)
		requireGuards(t, guard, conn, "b")
		require.NoError(t, conn.Close())

		tx, err := x.BeginTxx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, guard.Claim(t.Context(), tx, write("c", 5)))
		require.ErrorIs(t, guard.Claim(t.Context(), tx, write("c", 4)), fencing.ErrStale)
		require.NoError(t, tx.Commit())
	})
}

func TestHandlesOfPgx(t *testing.T) {
	store := servers.Store("PostgreSQL")
	_, dsn := store.Database(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()

	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	guard := newGuard(t, store, db)
	requireGuards(t, guard, db, "a")

	// Through pgx itself: the claim and the work travel in one batch.
	makeAccounts(t, db, 1)
	spend := func(f fencing.Fence, balance int) bool {
		accepted := false
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			query, args, err := guard.Statement(f)
			require.NoError(t, err)
			var batch pgx.Batch
			batch.Queue(query, args...)
			batch.Queue(`UPDATE accounts SET balance = $1 WHERE id = 0`, balance)
			results := tx.SendBatch(t.Context(), &batch)
			claimed, err := results.Exec()
			require.NoError(t, err)
			require.NoError(t, results.Close())
			if claimed.RowsAffected() == 0 {
				return fencing.ErrStale // rolls back
			}
			accepted = true
			return nil
		})
		if !accepted {
			require.ErrorIs(t, err, fencing.ErrStale)
		}
		return accepted
	}
	require.True(t, spend(write("accounts/0", 5), 10))
	require.True(t, spend(write("accounts/0", 5), 11))
	require.False(t, spend(write("accounts/0", 4), 99))
	require.Equal(t, []int{11}, balances(t, db))
}

// statements records what a connection sends.
type statements struct{ texts []string }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.texts = append(s.texts, q.SQL)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Do adds a check that marks its transaction, and a look for the mark before the commit. All else is one statement.
func TestStatementsThatTheGuardAdds(t *testing.T) {
	store := servers.Store("PostgreSQL")
	_, dsn := store.Database(t)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	var sent statements
	config.Tracer = &sent
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	guard := newGuard(t, store, db)
	makeAccounts(t, db, 1)

	work := func(_ context.Context, tx *sql.Tx) error {
		_, err := tx.Exec(`SELECT 1`)
		return err
	}
	sentBy := func(do func() error) []string {
		sent.texts = nil
		require.NoError(t, do())
		return sent.texts
	}
	const look = `SELECT coalesce(current_setting('fencelock.mark', true), '')`
	for _, token := range []fencing.Token{5, 5, 6} { // a new row, an equal token, a newer one
		f := write("a", token)
		texts := sentBy(func() error { return guard.Do(t.Context(), db, f, work) })
		require.Len(t, texts, 5)
		require.Contains(t, texts[1], `INSERT INTO "fencelock_guard"`)
		texts[1] = "claim"
		require.Equal(t, []string{"begin isolation level read committed", "claim", `SELECT 1`, look, "commit"}, texts)

		f = read("a", token)
		claim, _, err := guard.Statement(f)
		require.NoError(t, err)
		require.Equal(t, []string{
			claim, // in its own transaction
			"begin isolation level repeatable read read only",
			`SELECT max_write, max_read FROM "fencelock_guard" WHERE resource = $1` +
				` AND set_config('fencelock.mark', $2::text, true) = $2::text`,
			`SELECT 1`, look, "commit",
		}, sentBy(func() error { return guard.Do(t.Context(), db, f, work) }))

		require.Len(t, sentBy(func() error { return guard.Claim(t.Context(), db, f) }), 1)
		require.Len(t, sentBy(func() error { return guard.Derive(t.Context(), db, f) }), 1)
		require.Len(t, sentBy(func() error { return update(t, store.Dialect, db, 0, 1, token) }), 1)
		require.Len(t, sentBy(func() error { return upsert(t, store.Dialect, db, 0, 1, token) }), 1)
	}
}

// beginHook lets something happen just before a transaction begins.
type beginHook struct {
	*sql.DB
	before func()
}

func (h beginHook) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	h.before()
	return h.DB.BeginTx(ctx, opts)
}

// forgetful deletes the registers before each query.
type forgetful struct{ *sql.DB }

func (f forgetful) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if _, err := f.ExecContext(ctx, `DELETE FROM fencelock_guard`); err != nil {
		panic(err)
	}
	return f.DB.QueryRowContext(ctx, query, args...)
}

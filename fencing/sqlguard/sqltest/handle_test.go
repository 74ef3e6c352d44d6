package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

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

// The handles of bun fit, and send something else.
func TestHandlesOfBun(t *testing.T) {
	store := servers.Store("SQLite")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	x := bun.NewDB(db, sqlitedialect.New())
	tx, err := x.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	for _, handle := range []sqlguard.Tx{x, tx, &tx} {
		require.ErrorIs(t, guard.Claim(t.Context(), handle, write("a", 5)), sqlguard.ErrOption)
		require.ErrorIs(t, guard.Derive(t.Context(), handle, write("a", 5)), sqlguard.ErrOption)
		_, err := guard.Seen(t.Context(), handle, "a")
		require.ErrorIs(t, err, sqlguard.ErrOption)
	}
	require.NoError(t, guard.Claim(t.Context(), tx.Tx, write("a", 5)), "the handle inside")
	require.NoError(t, tx.Commit())
	require.NoError(t, guard.Do(t.Context(), x.DB, write("b", 5), nothing))
}

// The verdict of a statement that is sent by other means than this package's.
func TestStatementTellsItsVerdict(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		for _, c := range []struct {
			fence    fencing.Fence
			accepted bool
		}{
			{write("a", 5), true}, {write("a", 5), true}, {read("a", 7), true}, {write("a", 6), false}, {read("a", 4), false},
		} {
			query, args, err := guard.Statement(c.fence)
			require.NoError(t, err)
			result, err := db.Exec(query, args...)
			if store.Dialect == sqlguard.PostgreSQL && !c.accepted {
				require.ErrorIs(t, guard.StatementError(c.fence, err), fencing.ErrStale)
				continue
			}
			require.NoError(t, guard.StatementError(c.fence, err))
			verdict, want := result.RowsAffected, int64(1)
			if store.Dialect == sqlguard.MySQL {
				verdict, want = result.LastInsertId, int64(c.fence.Token)+1
			}
			got, err := verdict()
			require.NoError(t, err)
			require.Equal(t, c.accepted, got > 0 && got <= want, "%v: %d", c.fence, got)
		}
	})
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

	sentBy := func(do func() error) []string {
		sent.texts = nil
		require.NoError(t, do())
		return sent.texts
	}
	const look = `SELECT coalesce(current_setting('fencelock.mark', true), '')`
	for _, token := range []fencing.Token{5, 5, 6} { // a new row, an equal token, a newer one
		f := write("a", token)
		texts := sentBy(func() error { return guard.Do(t.Context(), db, f, send(`SELECT 1`)) })
		require.Len(t, texts, 5)
		require.Contains(t, texts[1], `INSERT INTO "fencelock_guard"`)
		texts[1] = "claim"
		require.Equal(t, []string{"begin isolation level read committed", "claim", `SELECT 1`, look, "commit"}, texts)

		f = read("a", token)
		texts = sentBy(func() error { return guard.Do(t.Context(), db, f, send(`SELECT 1`)) })
		require.Contains(t, texts[0], `INSERT INTO "fencelock_guard"`)
		require.Equal(t, []string{
			"begin isolation level repeatable read read only",
			`SELECT max_write, max_read FROM "fencelock_guard" WHERE resource = $1` +
				` AND set_config('fencelock.mark', $2::text, true) = $2::text`,
			`SELECT 1`, look, "commit",
		}, texts[1:], "after the claim, in its own transaction")

		require.Len(t, sentBy(func() error { return guard.Claim(t.Context(), db, f) }), 1)
		require.Len(t, sentBy(func() error { return guard.Derive(t.Context(), db, f) }), 1)
		require.Len(t, sentBy(func() error { return update(t, store.Dialect, db, 0, 1, token) }), 1)
		require.Len(t, sentBy(func() error { return upsert(t, store.Dialect, db, 0, 1, token) }), 1)
	}
}

package sqlguard_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

func fence(resource string, mode fencing.Mode) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: 7, Mode: mode}
}

func nothing(context.Context, *sql.Tx) error { return nil }

// claiming are the ways to claim a resource in another transaction than that of the section.
func claiming(t *testing.T, guard *sqlguard.Guard, db *sql.DB) map[string]func(context.Context, string) error {
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	other, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Rollback() })
	do := func(db sqlguard.DB, mode fencing.Mode) func(context.Context, string) error {
		return func(ctx context.Context, resource string) error {
			return guard.Do(ctx, db, fence(resource, mode), nothing)
		}
	}
	claim := func(tx sqlguard.Tx, mode fencing.Mode) func(context.Context, string) error {
		return func(ctx context.Context, resource string) error { return guard.Claim(ctx, tx, fence(resource, mode)) }
	}
	return map[string]func(context.Context, string) error{
		"write": do(db, fencing.Write), "read": do(db, fencing.Read), "by a connection": do(conn, fencing.Write),
		"claim": claim(db, fencing.Write), "claim of a read": claim(db, fencing.Read),
		"claim of another transaction": claim(other, fencing.Write),
		"derive": func(ctx context.Context, resource string) error {
			return guard.Derive(ctx, db, fence(resource, fencing.Read))
		},
	}
}

func onEveryDialect(t *testing.T, test func(*testing.T, *database, *sql.DB, *sqlguard.Guard)) {
	t.Helper()
	for _, dialect := range dialects {
		t.Run(dialect.String(), func(t *testing.T) {
			guard, err := sqlguard.New(dialect)
			require.NoError(t, err)
			var d database
			test(t, &d, d.open(t), guard)
		})
	}
}

// Whoever claims a resource inside its own write would wait for itself.
func TestClaimInsideItsOwnWriteIsRefused(t *testing.T) {
	onEveryDialect(t, func(t *testing.T, d *database, db *sql.DB, guard *sqlguard.Guard) {
		ways := claiming(t, guard, db)
		err := guard.Do(t.Context(), db, fence("a", fencing.Write), func(inA context.Context, _ *sql.Tx) error {
			for name, claim := range ways {
				require.NoError(t, claim(inA, "b"), "another resource: %s", name)
			}
			return guard.Do(inA, db, fence("b", fencing.Write), func(inB context.Context, _ *sql.Tx) error {
				sent := d.sent.Load()
				for name, claim := range ways {
					for _, ctx := range []context.Context{inB, context.WithoutCancel(inB)} {
						err := claim(ctx, "a")
						require.ErrorIs(t, err, sqlguard.ErrNested, name)
						require.ErrorContains(t, err, `"a"`)
						require.ErrorContains(t, err, "fencelock_guard")
						require.ErrorIs(t, claim(ctx, "b"), sqlguard.ErrNested, name)
					}
				}
				require.Equal(t, sent, d.sent.Load(), "nothing is sent")
				return nil
			})
		})
		require.NoError(t, err)
	})
}

func TestWhatIsNotNested(t *testing.T) {
	onEveryDialect(t, func(t *testing.T, _ *database, db *sql.DB, guard *sqlguard.Guard) {
		ways := claiming(t, guard, db)
		var over context.Context
		require.NoError(t, guard.Do(t.Context(), db, fence("a", fencing.Write), func(ctx context.Context, tx *sql.Tx) error {
			over = context.WithoutCancel(ctx)
			require.NoError(t, guard.Claim(ctx, tx, fence("a", fencing.Write)), "the same transaction")
			require.NoError(t, guard.Claim(ctx, struct{ *sql.Tx }{tx}, fence("a", fencing.Write)), "perhaps the same")
			for name, claim := range ways {
				require.NoError(t, claim(t.Context(), "a"), "the context from outside: %s", name)
			}
			return nil
		}))
		require.NoError(t, guard.Do(t.Context(), db, fence("a", fencing.Read), func(ctx context.Context, _ *sql.Tx) error {
			for name, claim := range ways {
				require.NoError(t, claim(ctx, "a"), "a read locks no row: %s", name)
				require.NoError(t, claim(over, "a"), "the write is over: %s", name)
			}
			return nil
		}))
	})
}

// The name of the table stands for the database.
func TestAnotherGuardOfTheSameTable(t *testing.T) {
	for _, dialect := range dialects {
		guard := func(dialect sqlguard.Dialect, table string) *sqlguard.Guard {
			guard, err := sqlguard.New(dialect, sqlguard.WithTable(table))
			require.NoError(t, err)
			return guard
		}
		db, f := new(database).open(t), fence("a", fencing.Write)
		err := guard(dialect, "one").Do(t.Context(), db, f, func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, guard(dialect, "other").Do(ctx, db, f, nothing))
			require.NoError(t, guard(dialects[int(dialect)%len(dialects)], "one").Do(ctx, db, f, nothing))
			return guard(dialect, "one").Do(ctx, new(database).open(t), f, nothing)
		})
		require.ErrorIs(t, err, sqlguard.ErrNested)
	}
}

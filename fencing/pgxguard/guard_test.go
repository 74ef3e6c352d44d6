package pgxguard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/pgxguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

func read(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Read}
}

func write(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Write}
}

// bank is a database with two accounts, 7 with a balance of 100 and 8 with 0.
type bank struct {
	*testing.T
	dsn   string
	pool  *pgxpool.Pool
	guard *pgxguard.Guard
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{T: t, dsn: postgres.Database(t)}
	b.pool = connect(t, b.dsn, pgx.QueryExecModeCacheStatement)
	guard, err := pgxguard.New()
	require.NoError(t, err)
	b.guard = guard
	require.NoError(t, guard.Create(t.Context(), b.pool))
	_, err = b.pool.Exec(t.Context(), `CREATE TABLE accounts (id INT PRIMARY KEY, balance INT, fence BIGINT NOT NULL);
		INSERT INTO accounts VALUES (7, 100, 0), (8, 0, 0)`)
	require.NoError(t, err)
	return b
}

// balances returns those of the accounts 7 and 8.
func (b *bank) balances() (both [2]int) {
	b.Helper()
	for i := range both {
		require.NoError(b, b.pool.QueryRow(b.Context(), `SELECT balance FROM accounts WHERE id = $1`, 7+i).Scan(&both[i]))
	}
	return both
}

// add is work that adds to the balance of an account.
func add(id, amount int) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance + $1 WHERE id = $2`, amount, id)
		return err
	}
}

func nothing(context.Context, pgx.Tx) error { return nil }

var modes = map[string]pgx.QueryExecMode{
	"cached statement": pgx.QueryExecModeCacheStatement, "cached description": pgx.QueryExecModeCacheDescribe,
	"describe": pgx.QueryExecModeDescribeExec, "exec": pgx.QueryExecModeExec,
	"simple protocol": pgx.QueryExecModeSimpleProtocol,
}

// Every handle in every mode: what is current is accepted, what is stale is refused before the work.
func TestEveryHandleInEveryMode(t *testing.T) {
	b := newBank(t)
	for name, mode := range modes {
		pool := connect(t, b.dsn, mode)
		held, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		for handle, db := range map[string]pgxguard.DB{"pool": pool, "pool's": held, "connection": held.Conn()} {
			t.Run(name+", "+handle, func(t *testing.T) {
				ctx, resource := t.Context(), name+"\x00"+handle
				before := b.balances()
				require.NoError(t, b.guard.Do(ctx, db, write(resource, 5), add(7, 1)))
				require.NoError(t, b.guard.Do(ctx, db, write(resource, 5), add(7, 1)))
				var balance int
				require.NoError(t, b.guard.Do(ctx, db, read(resource, 6), func(ctx context.Context, tx pgx.Tx) error {
					return tx.QueryRow(ctx, `SELECT balance FROM accounts WHERE id = 7`).Scan(&balance)
				}))
				require.Equal(t, before[0]+2, balance)
				unreached := func(context.Context, pgx.Tx) error { t.Error("ran under a stale fence"); return nil }
				var stale *fencing.StaleError
				require.ErrorAs(t, b.guard.Do(ctx, db, write(resource, 5), unreached), &stale)
				require.Equal(t, &fencing.StaleError{Resource: resource, Got: 5, Seen: 6}, stale)
				require.ErrorIs(t, b.guard.Do(ctx, db, read(resource, 4), unreached), fencing.ErrStale)
				require.ErrorIs(t, b.guard.Claim(ctx, db, write(resource, 5)), fencing.ErrStale)
				require.NoError(t, b.guard.Derive(ctx, db, read(resource, 5)))
				seen, err := b.guard.Seen(ctx, db, resource)
				require.NoError(t, err)
				require.Equal(t, fencing.Registers{MaxWrite: 5, MaxRead: 6}, seen)
			})
		}
		held.Release()
	}
}

// CopyFrom, batches and savepoints are part of the transaction: kept with it, and rolled back with it.
func TestNativeCallsAreInTheTransaction(t *testing.T) {
	b := newBank(t)
	failure := errors.New("failure")
	work := func(ids []int, end error) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			rows := pgx.CopyFromSlice(len(ids), func(i int) ([]any, error) { return []any{ids[i], 1, 0}, nil })
			n, err := tx.CopyFrom(ctx, pgx.Identifier{"accounts"}, []string{"id", "balance", "fence"}, rows)
			require.NoError(t, err)
			require.EqualValues(t, len(ids), n)
			batch := new(pgx.Batch)
			batch.Queue(`UPDATE accounts SET balance = balance + 1 WHERE id = 7`)
			batch.Queue(`UPDATE accounts SET balance = balance + 1 WHERE id = 8`)
			require.NoError(t, tx.SendBatch(ctx, batch).Close())
			require.Error(t, pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
				require.NoError(t, b.guard.Claim(ctx, inner, write("a", 5)), "a savepoint is in the transaction")
				_, err := inner.Exec(ctx, `SELECT 1/0`)
				return err
			}))
			return end
		}
	}
	require.ErrorIs(t, b.guard.Do(t.Context(), b.pool, write("a", 5), work([]int{1, 2}, failure)), failure)
	require.Equal(t, [2]int{100, 0}, b.balances())
	require.Panics(t, func() {
		_ = b.guard.Do(t.Context(), b.pool, write("a", 5), func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, add(7, 1)(ctx, tx))
			panic("work")
		})
	})
	seen, err := b.guard.Seen(t.Context(), b.pool, "a")
	require.NoError(t, err)
	require.Zero(t, seen, "the claims were rolled back too")

	require.NoError(t, b.guard.Do(t.Context(), b.pool, write("a", 5), work([]int{1, 2}, nil)))
	require.Equal(t, [2]int{101, 1}, b.balances())
	var n int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM accounts`).Scan(&n))
	require.Equal(t, 4, n)
}

// The example, on a database: an import replaces the one before, and a stale one changes nothing.
func TestExampleOfAnImport(t *testing.T) {
	b := newBank(t)
	_, err := b.pool.Exec(t.Context(), `CREATE TABLE postings (file TEXT, line INT, amount INT)`)
	require.NoError(t, err)
	under := func(token fencing.Token) context.Context {
		return fencing.NewContext(t.Context(), write("march.csv", token))
	}
	store := imports{b.pool, b.guard}.store
	require.NoError(t, store(under(5), "march.csv", [][]any{{"march.csv", 1, 10}}))
	require.NoError(t, store(under(6), "march.csv", [][]any{{"march.csv", 1, 20}, {"march.csv", 2, 30}}))
	require.ErrorIs(t, store(under(5), "march.csv", nil), fencing.ErrStale)
	require.ErrorIs(t, store(t.Context(), "march.csv", nil), fencing.ErrMissing)
	var sum int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT sum(amount) FROM postings`).Scan(&sum))
	require.Equal(t, 50, sum)
}

// A read sees one snapshot, taken after its claim, cannot write, and keeps no write waiting.
func TestRead(t *testing.T) {
	b := newBank(t)
	require.NoError(t, b.guard.Do(t.Context(), b.pool, read("a", 5), func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, b.guard.Do(t.Context(), b.pool, write("a", 6), add(7, 1)), "a write does not wait for a read")
		var balance int
		require.NoError(t, tx.QueryRow(ctx, `SELECT balance FROM accounts WHERE id = 7`).Scan(&balance))
		require.Equal(t, 100, balance)
		return nil
	}))
	var refused *pgconn.PgError
	require.ErrorAs(t, b.guard.Do(t.Context(), b.pool, read("a", 6), add(7, 1)), &refused)
	require.Equal(t, "25006", refused.Code, "read_only_sql_transaction")
	both := []fencing.Fence{read("b", 3), read("a", 7)}
	require.NoError(t, b.guard.DoAll(t.Context(), b.pool, both, nothing))
	require.ErrorIs(t, b.guard.Do(t.Context(), b.pool, write("b", 2), nothing), fencing.ErrStale)
	require.Equal(t, [2]int{101, 0}, b.balances())
}

// A row that carries its own fence.
func TestFenceColumn(t *testing.T) {
	b := newBank(t)
	const lookup = `SELECT fence FROM accounts WHERE id = $1`
	update := func(id int, f fencing.Fence) error {
		tag, err := b.pool.Exec(t.Context(),
			`UPDATE accounts SET balance = balance + 1, fence = $2 WHERE id = $1 AND fence <= $2`, id, f.Token)
		require.NoError(t, err)
		return b.guard.CheckUpdate(t.Context(), b.pool, f, tag, lookup, id)
	}
	require.NoError(t, update(7, write("a", 5)))
	var stale *fencing.StaleError
	require.ErrorAs(t, update(7, write("a", 4)), &stale)
	require.EqualValues(t, 5, stale.Seen)
	require.ErrorIs(t, update(9, write("a", 6)), sqlguard.ErrNoRow)

	upsert := func(f fencing.Fence) error {
		tag, err := b.pool.Exec(t.Context(), `INSERT INTO accounts VALUES (9, 1, $1) ON CONFLICT (id) DO UPDATE
			SET balance = excluded.balance, fence = excluded.fence WHERE accounts.fence <= excluded.fence`, f.Token)
		require.NoError(t, err)
		return b.guard.CheckUpsert(t.Context(), b.pool, f, tag, lookup, 9)
	}
	require.NoError(t, upsert(write("b", 2)))
	require.NoError(t, upsert(write("b", 3)))
	require.ErrorIs(t, upsert(write("b", 2)), fencing.ErrStale)
}

// All else is tested with package sqlguard, whose code it is.
func TestBadInput(t *testing.T) {
	b := newBank(t)
	ctx, zero := t.Context(), new(pgxguard.Guard)
	for name, err := range map[string]error{
		"no work":      b.guard.Do(ctx, b.pool, write("a", 1), nil),
		"no fence":     b.guard.DoAll(ctx, b.pool, nil, nothing),
		"zero, Do":     zero.Do(ctx, b.pool, write("a", 1), nothing),
		"zero, Claim":  zero.Claim(ctx, b.pool, write("a", 1)),
		"zero, Create": zero.Create(ctx, b.pool),
		"zero, Update": zero.CheckUpdate(ctx, b.pool, write("a", 1), pgconn.CommandTag{}, "SELECT 1"),
		"zero, Upsert": zero.CheckUpsert(ctx, b.pool, write("a", 1), pgconn.CommandTag{}, "SELECT 1"),
	} {
		require.ErrorIs(t, err, sqlguard.ErrOption, name)
	}
	_, err := pgxguard.New(nil)
	require.ErrorIs(t, err, sqlguard.ErrOption)
	other, err := pgxguard.New(sqlguard.WithTable("public.tokens"))
	require.NoError(t, err)
	require.Contains(t, other.Schema(), `"public"."tokens"`)
	require.ErrorContains(t, other.Do(ctx, b.pool, write("a", 1), nothing), "42P01", "the table was not created")
}

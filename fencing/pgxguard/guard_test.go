package pgxguard_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/pgxguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testpostgres"
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
	guard := expect.NoError(pgxguard.New()).In(t)
	b.guard = guard
	require.NoError(t, guard.Create(t.Context(), b.pool))
	_, err := b.pool.Exec(t.Context(), `CREATE TABLE accounts (id INT PRIMARY KEY, balance INT, fence BIGINT NOT NULL);
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
		held := expect.NoError(pool.Acquire(t.Context())).In(t)
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
				seen := expect.NoError(b.guard.Seen(ctx, db, resource)).In(t)
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
			n := expect.NoError(tx.CopyFrom(ctx, pgx.Identifier{"accounts"}, []string{"id", "balance", "fence"}, rows)).In(t)
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
	require.Zero(t, expect.NoError(b.guard.Seen(t.Context(), b.pool, "a")).In(t), "the claims were rolled back too")

	require.NoError(t, b.guard.Do(t.Context(), b.pool, write("a", 5), work([]int{1, 2}, nil)))
	require.Equal(t, [2]int{101, 1}, b.balances())
	var n int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM accounts`).Scan(&n))
	require.Equal(t, 4, n)
}

// The example, on a database: an import replaces the one before, and a stale one changes nothing.
func TestExampleOfAnImport(t *testing.T) {
	b := newBank(t)
	expect.NoError(b.pool.Exec(t.Context(), `CREATE TABLE postings (file TEXT, line INT, amount INT)`)).In(t)
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
	other := expect.NoError(pgxguard.New(sqlguard.WithTable("public.tokens"))).In(t)
	require.Contains(t, other.Schema(), `"public"."tokens"`)
	require.ErrorContains(t, other.Do(ctx, b.pool, write("a", 1), nothing), "42P01", "the table was not created")
}

// postgres is the server of this run of tests.
var postgres testpostgres.Server

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

type suite struct{ *testing.M }

func (s suite) Run() int {
	defer postgres.Stop()
	return s.M.Run()
}

// connect opens a pool until the test ends, which requires that each connection has been given back.
func connect(t *testing.T, dsn string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config := expect.NoError(pgxpool.ParseConfig(dsn)).In(t)
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 8
	pool := expect.NoError(pgxpool.NewWithConfig(t.Context(), config)).In(t)
	t.Cleanup(func() {
		given := func() bool { return pool.Stat().AcquiredConns() == 0 } // a closed one is given back in the background
		require.Eventually(t, given, time.Minute, time.Millisecond)
		pool.Close()
	})
	return pool
}

// The lease is lost while the work does not look at its context. The next holder does not wait for the work.
func TestLostLeaseEndsTheTransaction(t *testing.T) {
	b := newBank(t)
	conn := expect.NoError(pgx.Connect(t.Context(), b.dsn)).In(t)
	for name, db := range map[string]pgxguard.DB{"pool": b.pool, "connection": conn} {
		t.Run(name, func(t *testing.T) {
			hour, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			ctx, lose := context.WithCancelCause(hour)
			loss := errors.New("lost")
			err := b.guard.Do(ctx, db, write("a", 5), func(_ context.Context, tx pgx.Tx) error {
				require.NoError(t, add(7, -10)(t.Context(), tx))
				var limited bool // by the server, where a process is paused, which closes nothing
				require.NoError(t, tx.QueryRow(t.Context(), `SELECT
					current_setting('idle_in_transaction_session_timeout')::interval BETWEEN '1 minute' AND '1 hour'`).Scan(&limited))
				require.True(t, limited)
				lose(loss)
				require.NoError(t, b.guard.Do(t.Context(), b.pool, write("a", 6), add(8, 1)))
				return add(8, 10)(t.Context(), tx)
			})
			require.ErrorIs(t, err, loss)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, b.guard.Do(t.Context(), b.pool, write("a", 5), nothing), fencing.ErrStale)
		})
		expect.NoError(b.pool.Exec(t.Context(), `DELETE FROM fencelock_guard`)).In(t)
	}
	require.Equal(t, [2]int{100, 2}, b.balances())
}

// Nothing is committed after the end of the context, and nothing begins.
func TestEndedContext(t *testing.T) {
	b := newBank(t)
	loss := errors.New("lost")
	ctx, lose := context.WithCancelCause(t.Context())
	err := b.guard.Do(ctx, b.pool, write("a", 5), func(_ context.Context, tx pgx.Tx) error {
		defer lose(loss)
		return add(7, 1)(t.Context(), tx)
	})
	require.ErrorIs(t, err, loss)
	require.ErrorIs(t, b.guard.Do(ctx, b.pool, write("a", 5), nothing), loss)
	require.Equal(t, [2]int{100, 0}, b.balances())
}

// slow is a connection that takes its time to close.
type slow struct{ net.Conn }

func (s slow) Close() error {
	time.Sleep(20 * time.Millisecond)
	return s.Conn.Close()
}

// The context may end while the transaction is rolled back. Only that Do's connection is closed then.
func TestEndOfTheContextClosesNoConnectionOfOthers(t *testing.T) {
	b := newBank(t)
	config := expect.NoError(pgxpool.ParseConfig(b.dsn)).In(t)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return slow{conn}, err
	}
	pool := expect.NoError(pgxpool.NewWithConfig(t.Context(), config)).In(t)
	defer pool.Close()
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		require.Error(t, b.guard.Do(ctx, pool, write("a", 5), func(context.Context, pgx.Tx) error {
			cancel()
			return errors.New("failure")
		}))
		expect.NoError(pool.Exec(t.Context(), `SELECT pg_sleep(0.05)`)).In(t)
	}
}

// spentContext is the context of a request that a web framework uses again: once the request is over, it panics.
type spentContext struct {
	context.Context
	over atomic.Bool
}

func (c *spentContext) Value(key any) any {
	if c.over.Load() {
		panic("the request is over")
	}
	return c.Context.Value(key)
}

// asking is a tracer that asks each context for a value.
type asking struct{}

func (asking) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	_ = ctx.Value(asking{})
	return ctx
}

func (asking) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The transaction is over, and its connection given back, although the context of the caller panics.
func TestTheEndDoesNotDependOnACallersContext(t *testing.T) {
	b := newBank(t)
	config := expect.NoError(pgxpool.ParseConfig(b.dsn)).In(t)
	config.ConnConfig.Tracer = asking{}
	pool := expect.NoError(pgxpool.NewWithConfig(t.Context(), config)).In(t)
	for name, failure := range map[string]error{"commit": nil, "rollback": errors.New("failure")} {
		parent, cancel := context.WithCancel(t.Context())
		ctx := &spentContext{Context: parent}
		func() {
			defer func() { _ = recover() }()
			_ = b.guard.Do(ctx, pool, write("a", 5), func(context.Context, pgx.Tx) error {
				ctx.over.Store(true)
				return failure
			})
		}()
		require.Zero(t, pool.Stat().AcquiredConns(), name)
		ctx.over.Store(false)
		cancel()
	}
	pool.Close()
}

// A work that ends the transaction itself gives its connection back to the pool, whose next user keeps it.
func TestAConnectionThatTheWorkHasGivenBackStaysOpen(t *testing.T) {
	b := newBank(t)
	for name, end := range map[string]func(pgx.Tx, context.Context) error{
		"commit": pgx.Tx.Commit, "rollback": pgx.Tx.Rollback,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var next *pgxpool.Conn
		err := b.guard.Do(ctx, b.pool, write("a", 5), func(ctx context.Context, tx pgx.Tx) (err error) {
			conn := tx.Conn()
			require.NoError(t, end(tx, ctx))
			next = expect.NoError(b.pool.Acquire(t.Context())).In(t)
			require.Same(t, conn, next.Conn())
			cancel()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled, name)
		require.NoError(t, next.Ping(t.Context()), name)
		next.Release()
	}
}

// A claim that waits for another holder's transaction ends with its context, also in the server.
func TestWaitingClaimEndsWithItsContext(t *testing.T) {
	b := newBank(t)
	require.NoError(t, b.guard.Do(t.Context(), b.pool, write("a", 5), func(context.Context, pgx.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		count := func() (n int) {
			require.NoError(t, b.pool.QueryRow(t.Context(),
				`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&n))
			return n
		}
		done := make(chan error)
		go func() { done <- b.guard.Do(ctx, b.pool, write("a", 6), nothing) }()
		require.Eventually(t, func() bool { return count() == 1 }, time.Minute, time.Millisecond)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Eventually(t, func() bool { return count() == 0 }, time.Minute, time.Millisecond)
		return nil
	}))
}

// What the work must not do, and what a caller must not give.
func TestTransactionOfTheWork(t *testing.T) {
	b := newBank(t)
	for _, ending := range []string{"COMMIT", "ROLLBACK", "COMMIT; BEGIN", "COMMIT AND CHAIN"} {
		err := b.guard.Do(t.Context(), b.pool, write("a", 5), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, ending, pgx.QueryExecModeSimpleProtocol)
			return err
		})
		require.ErrorIs(t, err, sqlguard.ErrTransactionEnded, ending)
	}
	for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Commit, pgx.Tx.Rollback} {
		require.ErrorIs(t, b.guard.Do(t.Context(), b.pool, write("a", 5), func(ctx context.Context, tx pgx.Tx) error {
			return end(tx, ctx)
		}), sqlguard.ErrTransactionEnded)
	}

	require.NoError(t, b.pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		tx := expect.NoError(conn.Begin(t.Context())).In(t)
		for _, f := range []fencing.Fence{read("a", 6), write("a", 6)} {
			require.ErrorIs(t, b.guard.Do(t.Context(), conn, f, nothing), sqlguard.ErrInTransaction)
		}
		require.NoError(t, b.guard.Claim(t.Context(), tx, write("a", 7)))
		return tx.Commit(t.Context())
	}))
	require.NoError(t, b.guard.Do(t.Context(), b.pool, write("a", 7), nothing))
	require.ErrorIs(t, b.guard.Do(t.Context(), b.pool, write("a", 6), nothing), fencing.ErrStale)
}

// A claim that would wait for the transaction that it is called in.
// Work that ends its transaction and returns an error is told so, also if the lock is lost after that.
func TestWorkThatFailsAfterTheEndOfItsTransaction(t *testing.T) {
	b := newBank(t)
	failure := errors.New("failure")
	endings := map[string]func(pgx.Tx, context.Context) error{"Commit": pgx.Tx.Commit, "Rollback": pgx.Tx.Rollback}
	for _, text := range []string{"COMMIT", "ROLLBACK", "COMMIT; BEGIN", "COMMIT AND CHAIN"} {
		endings[text] = func(tx pgx.Tx, ctx context.Context) error {
			_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
			return err
		}
	}
	for name, end := range endings {
		err := b.guard.Do(t.Context(), b.pool, write("a", 5), func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, end(tx, ctx))
			return failure
		})
		require.ErrorIs(t, err, sqlguard.ErrTransactionEnded, name)
		require.ErrorIs(t, err, failure, name)
	}
	for _, returned := range []error{nil, failure} {
		for name, end := range map[string]func(pgx.Tx, context.Context) error{"before": pgx.Tx.Commit, "after": nil} {
			ctx, cancel := context.WithCancelCause(t.Context())
			before := b.balances()
			err := b.guard.Do(ctx, b.pool, write("a", 5), func(ctx context.Context, tx pgx.Tx) error {
				require.NoError(t, add(7, 1)(ctx, tx))
				if end != nil {
					require.NoError(t, end(tx, ctx))
				}
				cancel(&fencing.LostError{Resource: "a", Token: 5, Reason: "test"})
				require.Error(t, tx.Commit(context.Background()), "too late, or twice")
				return returned
			})
			committed := end != nil
			require.Equal(t, committed, errors.Is(err, sqlguard.ErrTransactionEnded), "%s: %v", name, err)
			require.Equal(t, !committed, errors.Is(err, fencing.ErrLost), "%s: %v", name, err)
			require.Equal(t, committed, before != b.balances())
		}
	}
}

// The statement of sqlguard in a batch on a pool: after a refusal nothing of the batch is carried out.
func TestStatementInABatch(t *testing.T) {
	b := newBank(t)
	guard := expect.NoError(sqlguard.New(sqlguard.PostgreSQL)).In(t)
	for name, mode := range modes {
		pool := connect(t, b.dsn, mode)
		for _, c := range []struct {
			fence    fencing.Fence
			accepted bool
		}{
			{write(name, 5), true},
			{write(name, 5), true},
			{read(name, 7), true},
			{read(name, 7), true},
			{write(name, 6), false},
			{write(name, 8), true},
			{read(name, 7), false},
		} {
			query, args, err := guard.Statement(c.fence)
			require.NoError(t, err)
			before := b.balances()
			batch := new(pgx.Batch)
			batch.Queue(query, args...)
			batch.Queue(`UPDATE accounts SET balance = balance + 1 WHERE id = 7`)
			err = guard.StatementError(c.fence, pool.SendBatch(t.Context(), batch).Close())
			require.Equal(t, c.accepted, err == nil, "%s, %v: %v", name, c.fence, err)
			require.Equal(t, !c.accepted, errors.Is(err, fencing.ErrStale), "%s, %v: %v", name, c.fence, err)
			require.Equal(t, c.accepted, before != b.balances(), "%s, %v", name, c.fence)
		}
	}
	_, err := b.pool.Exec(t.Context(), `SELECT CAST('other' || count(*) AS BIGINT) FROM accounts`)
	require.Equal(t, err, guard.StatementError(write("a", 1), err))
	require.NotErrorIs(t, err, fencing.ErrStale)
}

func TestNested(t *testing.T) {
	b := newBank(t)
	require.NoError(t, b.guard.Do(t.Context(), b.pool, write("a", 5), func(ctx context.Context, tx pgx.Tx) error {
		require.ErrorIs(t, b.guard.Do(ctx, b.pool, write("a", 5), nothing), fencing.ErrNested)
		require.ErrorIs(t, b.guard.Claim(ctx, b.pool, write("a", 5)), fencing.ErrNested)
		require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(other pgx.Tx) error {
			require.ErrorIs(t, b.guard.Claim(ctx, other, write("a", 5)), fencing.ErrNested)
			return nil
		}))
		require.NoError(t, b.guard.Claim(ctx, tx, write("a", 5)))
		require.NoError(t, b.guard.Claim(ctx, tx.Conn(), write("a", 5)))
		require.ErrorIs(t, b.guard.Do(ctx, tx.Conn(), write("b", 5), nothing), sqlguard.ErrInTransaction)
		return b.guard.Do(ctx, b.pool, write("b", 5), nothing)
	}))
}

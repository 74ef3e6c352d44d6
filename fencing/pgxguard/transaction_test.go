package pgxguard_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/pgxguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// The lease is lost while the work does not look at its context. The next holder does not wait for the work.
func TestLostLeaseEndsTheTransaction(t *testing.T) {
	b := newBank(t)
	conn, err := pgx.Connect(t.Context(), b.dsn)
	require.NoError(t, err)
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
		_, err := b.pool.Exec(t.Context(), `DELETE FROM fencelock_guard`)
		require.NoError(t, err)
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

// The context may end while the transaction is rolled back. What is closed then is the connection of that Do, and not
// the connection of the next caller, to whom the pool gives it.
func TestEndOfTheContextClosesNoConnectionOfOthers(t *testing.T) {
	b := newBank(t)
	config, err := pgxpool.ParseConfig(b.dsn)
	require.NoError(t, err)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return slow{conn}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		require.Error(t, b.guard.Do(ctx, pool, write("a", 5), func(context.Context, pgx.Tx) error {
			cancel()
			return errors.New("failure")
		}))
		_, err := pool.Exec(t.Context(), `SELECT pg_sleep(0.05)`)
		require.NoError(t, err)
	}
}

// A work that ends the transaction itself gives its connection back to the pool, whose next user keeps it when the
// context of the first ends.
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
			next, err = b.pool.Acquire(t.Context())
			require.NoError(t, err)
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
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
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

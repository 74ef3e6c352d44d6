package pgxguard_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/pgxguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// transfer moves 10 from one account to the other. inside is called between the two updates.
func transfer(from, to int, inside func()) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		if err := add(from, -10)(ctx, tx); err != nil {
			return err
		}
		inside()
		return add(to, 10)(ctx, tx)
	}
}

// Transfers in both directions, which name the accounts in either order, do not deadlock on their claims; one stale
// fence refuses all of a transfer.
func TestTransfers(t *testing.T) {
	b := newBank(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 10 {
				fences := []fencing.Fence{write("accounts/7", 5), write("accounts/8", 5)}
				from, to := 7, 8
				if i%2 == 1 {
					fences[0], fences[1], from, to = fences[1], fences[0], to, from
				}
				if err := b.guard.DoAll(t.Context(), b.pool, fences, transfer(from, to, func() {})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, [2]int{100, 0}, b.balances())
	var stale *fencing.StaleError
	fences := []fencing.Fence{write("accounts/7", 6), write("accounts/8", 4)}
	require.ErrorAs(t, b.guard.DoAll(t.Context(), b.pool, fences, transfer(7, 8, func() {})), &stale)
	require.Equal(t, "accounts/8", stale.Resource)
	seen, err := b.guard.Seen(t.Context(), b.pool, "accounts/7")
	require.NoError(t, err)
	require.EqualValues(t, 5, seen.MaxWrite, "no register was raised")
}

// The lease is lost while the work does not look at its context. The next holder does not wait for the work.
func TestLostLeaseEndsTheTransaction(t *testing.T) {
	b := newBank(t)
	conn, err := pgx.Connect(t.Context(), b.dsn)
	require.NoError(t, err)
	for name, db := range map[string]pgxguard.DB{"pool": b.pool, "connection": conn} {
		t.Run(name, func(t *testing.T) {
			ctx, lose := context.WithCancelCause(t.Context())
			loss := &lost{}
			err := b.guard.Do(ctx, db, write("a", 5), func(_ context.Context, tx pgx.Tx) error {
				require.NoError(t, add(7, -10)(t.Context(), tx))
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

type lost struct{}

func (*lost) Error() string { return "lost" }

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

// A claim that fails by a conflict is tried again. The claim of a read is a transaction at the level of the connection.
func TestConflictsOfClaimsAreRetried(t *testing.T) {
	b := newBank(t)
	pool := connect(t, b.dsn+" default_transaction_isolation=serializable", pgx.QueryExecModeCacheStatement)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := b.guard.Do(t.Context(), pool, read("a", fencing.Token(i+1)), nothing); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// holderProcess is set in the environment of a process that is paused inside its work: the database.
const holderProcess = "PGXGUARD_HOLDER"

// A process is stopped inside a transfer, beyond its time. The next holder transfers, while the first process is still
// stopped: only the server can let it in. When the first one goes on, its transfer fails, and its fence is stale.
func TestHolderThatIsPausedInsideATransfer(t *testing.T) {
	if dsn := os.Getenv(holderProcess); dsn != "" {
		pausedTransfer(t, dsn)
		return
	}
	b := newBank(t)
	program, err := os.Executable()
	require.NoError(t, err)
	paused := exec.Command(program, "-test.run=^TestHolderThatIsPausedInsideATransfer$", "-test.v")
	paused.Env = append(os.Environ(), holderProcess+"="+b.dsn)
	output, err := paused.StdoutPipe()
	require.NoError(t, err)
	goOn, err := paused.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, paused.Start())
	defer func() { _ = paused.Process.Kill() }()
	lines := bufio.NewScanner(output)
	for lines.Scan() && lines.Text() != "inside" {
	}
	var state syscall.WaitStatus
	_, err = syscall.Wait4(paused.Process.Pid, &state, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, state.Stopped(), state)

	fences := []fencing.Fence{write("accounts/8", 6), write("accounts/7", 6)}
	require.NoError(t, b.guard.DoAll(t.Context(), b.pool, fences, transfer(7, 8, func() {})))
	require.NoError(t, paused.Process.Signal(syscall.SIGCONT))
	require.NoError(t, goOn.Close())
	for lines.Scan() {
		t.Log(lines.Text())
	}
	require.NoError(t, paused.Wait())
	require.Equal(t, [2]int{90, 10}, b.balances())
}

// pausedTransfer is what the process does.
func pausedTransfer(t *testing.T, dsn string) {
	pool := connect(t, dsn, pgx.QueryExecModeCacheStatement)
	guard, err := pgxguard.New()
	require.NoError(t, err)
	fences := []fencing.Fence{write("accounts/7", 5), write("accounts/8", 5)}
	for inside := false; !inside; { // a busy machine may need longer than the second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // as the context of a lease that is not renewed
		defer cancel()
		err = guard.DoAll(ctx, pool, fences, transfer(7, 8, func() {
			inside = true
			fmt.Println("inside")
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // it returns before the process has stopped
			_, _ = io.Copy(io.Discard, os.Stdin)
		}))
	}
	require.Error(t, err)
	require.ErrorIs(t, guard.DoAll(t.Context(), pool, fences, transfer(7, 8, func() {})), fencing.ErrStale)
}

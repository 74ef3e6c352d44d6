package sqltest_test

import (
	"bufio"
	"context"
	"database/sql"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func onMySQLAndMariaDB(t *testing.T, test func(*testing.T, sqltest.Store, *sql.DB, *sqlguard.Guard)) {
	t.Helper()
	for _, name := range []string{"MariaDB", "MySQL"} {
		t.Run(name, func(t *testing.T) {
			store := servers.Store(name)
			db := store.Open(t)
			test(t, store, db, newGuard(t, store, db))
		})
	}
}

func send(text string) func(context.Context, *sql.Tx) error {
	return func(_ context.Context, tx *sql.Tx) error {
		_, err := tx.Exec(text)
		return err
	}
}

// endings are the ways in which work can end its transaction. After some of them another one is open.
func endings(d sqlguard.Dialect) []string {
	all := []string{`COMMIT`, `ROLLBACK`}
	switch d {
	case sqlguard.PostgreSQL:
		return append(all, `COMMIT; BEGIN`, `ROLLBACK; BEGIN`, `COMMIT AND CHAIN`, `ROLLBACK AND CHAIN`)
	case sqlguard.SQLite:
		return append(all, `COMMIT; BEGIN`, `ROLLBACK; BEGIN`)
	default:
		return append(all, `CREATE TABLE other (id INT)`, `START TRANSACTION`, `COMMIT AND CHAIN`, `ROLLBACK AND CHAIN`)
	}
}

func TestTransactionThatEndedInsideTheWork(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		for i, ending := range endings(store.Dialect) {
			f := account(0, fencing.Token(2*i+1))
			err := guard.Do(t.Context(), db, f, func(_ context.Context, tx *sql.Tx) error {
				require.NoError(t, send(ending)(t.Context(), tx))
				f.Token++
				require.NoError(t, guard.Do(t.Context(), db, f, nothing), "nobody holds the row any more")
				return updateBalance(t.Context(), tx, store.Dialect, 0, -1)
			})
			require.ErrorIs(t, err, sqlguard.ErrTransactionEnded, ending)
			require.False(t, sqlguard.IsConflict(err))
			if ending == `CREATE TABLE other (id INT)` {
				continue // which a read-only transaction refuses
			}
			err = guard.Do(t.Context(), db, read("b", 1), func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, send(ending)(ctx, tx))
				if !strings.HasSuffix(ending, "CHAIN") { // into one that is read-only too
					_ = updateBalance(ctx, tx, store.Dialect, 0, -2)
				}
				return nil
			})
			require.ErrorIs(t, err, sqlguard.ErrTransactionEnded, "read: %s", ending)
		}
	})
}

// Savepoints are the work's own, whatever their names.
func TestSavepointsInsideTheWork(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		require.NoError(t, guard.Do(t.Context(), db, account(0, 5), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, send(`SAVEPOINT a`)(ctx, tx))
			require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, -1))
			require.NoError(t, send(`ROLLBACK TO SAVEPOINT a`)(ctx, tx))
			require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, 5))
			return send(`RELEASE SAVEPOINT a`)(ctx, tx)
		}))
		require.Equal(t, []int{5}, balances(t, db))
	})
}

// deadlock makes the work under some claims the victim of a deadlock, and returns what DoAll did. The work gives
// onVictim the error of its statement.
func deadlock(
	t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard, claims int,
	onVictim func(*sql.Tx, error) error,
) error {
	t.Helper()
	makeAccounts(t, db, 50)
	other := begin(t, db)
	for id := 2; id < 40; id++ { // MySQL and MariaDB roll back the one that has changed less
		require.NoError(t, updateBalance(t.Context(), other, store.Dialect, id, 7))
	}
	done := make(chan error, 1)
	runs := 0
	fences := []fencing.Fence{write("accounts", 10), read("rates", 10)}
	err := guard.DoAll(t.Context(), db, fences[:claims], func(_ context.Context, tx *sql.Tx) error {
		runs++
		if store.Dialect == sqlguard.PostgreSQL { // it rolls back the one whose patience ends first
			require.NoError(t, send(`SET LOCAL deadlock_timeout = '10ms'`)(t.Context(), tx))
			require.NoError(t, send(`SET deadlock_timeout = '10min'`)(t.Context(), other))
		}
		require.NoError(t, updateBalance(t.Context(), tx, store.Dialect, 1, 100))
		go func() { done <- updateBalance(t.Context(), other, store.Dialect, 1, 7) }()
		awaitLockWait(t, store, db)
		err := updateBalance(t.Context(), tx, store.Dialect, 2, 100)
		require.Error(t, err)
		return onVictim(tx, err)
	})
	require.NoError(t, <-done)
	require.NoError(t, other.Commit())
	require.Equal(t, 1, runs, "work that has run is not run again")
	return err
}

func TestDeadlockThatTheWorkDropped(t *testing.T) {
	onEveryServer(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		err := deadlock(t, store, db, guard, 2, func(tx *sql.Tx, _ error) error {
			_ = updateBalance(t.Context(), tx, store.Dialect, 49, 100) // as if nothing had happened
			return nil
		})
		require.Error(t, err)
		if store.Dialect == sqlguard.MySQL {
			require.ErrorIs(t, err, sqlguard.ErrTransactionEnded)
		}
		require.False(t, sqlguard.IsConflict(err), "not to be repeated: a part of it may be committed")
		require.Equal(t, 7, balances(t, db)[1])
	})
}

// aborting is set in the environment of a run that is to be killed.
const aborting = "SQLTEST_ABORTING"

// A run that is killed cannot clean up, and nothing of it is left all the same: no file, and no server.
func TestAbortedRunLeavesNothing(t *testing.T) {
	t.Parallel()
	temporary, err := os.MkdirTemp("", "aborted") // not t.TempDir, which other users cannot enter
	require.NoError(t, err)
	defer func() { require.NoError(t, os.Remove(temporary), "it is empty") }()
	require.NoError(t, os.Chmod(temporary, 0o755))

	run := exec.Command(os.Args[0], "-test.run=^TestToBeAborted$")
	run.Env = append(os.Environ(), "TMPDIR="+temporary, aborting+"=1")
	output, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err, "it ended before it was ready")
	require.Equal(t, "ready\n", line)
	inUse, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.NotEmpty(t, inUse)

	require.NoError(t, run.Process.Kill())
	require.Error(t, run.Wait())
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(temporary)
		return err == nil && len(left) == 0
	}, eventLimit, 20*time.Millisecond)
}

// TestToBeAborted is the run that TestAbortedRunLeavesNothing kills.
func TestToBeAborted(t *testing.T) {
	if os.Getenv(aborting) == "" {
		t.Skip("only as a process of another test")
	}
	var doomed sqltest.Servers
	for _, store := range doomed.Stores() {
		t.Run(store.Name, func(t *testing.T) { makeAccounts(t, store.Open(t), 1) })
	}
	_, err := os.Stdout.WriteString("ready\n")
	require.NoError(t, err)
	select {}
}

// maxStalled leaves most lockers awake, so that a stalled one is overtaken.
const maxStalled = 3

// stalls puts holders to sleep until their lease has ended and another holder has
// been at work: by events, so that it is so for sure.
type stalls struct {
	mu      sync.Mutex
	changed sync.Cond                // claimed or closing
	claimed map[string]fencing.Token // the newest that has been at the store
	stalled int
	closing bool // whoever sleeps wakes up, and nobody falls asleep any more
}

func newStalls() *stalls {
	s := &stalls{claimed: map[string]fencing.Token{}}
	s.changed.L = &s.mu
	return s
}

// atWork notes that a holder has claimed at the store.
func (s *stalls) atWork(f fencing.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed[f.Resource] = max(s.claimed[f.Resource], f.Token)
	s.changed.Broadcast()
}

// stalling is how a holder wakes up.
type stalling int

const (
	awake     stalling = iota // it was not stalled after all: too many are, or the run is ending
	ended                     // the lease has ended, and nobody else has been at work yet
	overtaken                 // the lease has ended, and a newer holder has claimed
)

// stall calls end, which ends the lease unless it does so by itself, and returns
// when a newer holder has claimed.
func (s *stalls) stall(f fencing.Fence, end func()) stalling {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.stalled == maxStalled {
		return awake
	}
	end()
	s.stalled++
	for s.claimed[f.Resource] <= f.Token && !s.closing {
		s.changed.Wait()
	}
	s.stalled--
	if s.claimed[f.Resource] > f.Token {
		return overtaken
	}
	return ended
}

// close is for when a locker has finished: it overtakes nobody any more.
func (s *stalls) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.changed.Broadcast()
}

// Writers of one process follow each other under one lease on Redis, each with a token of its own: one that writes
// after its Unlock is refused as soon as its successor has written, be that the next writer, or a reader that has
// become one.
func TestALateWriterOfTheSameProcess(t *testing.T) {
	redis := testredis.Start(t)
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		locker, err := rwlock.New(redis.Client(t), rwlock.WithPrefix(store.Name))
		require.NoError(t, err)
		defer func() { require.NoError(t, locker.Close()) }()
		mu := locker.RWMutex("a", rwlock.WithLinger(time.Minute))
		save := func(ctx context.Context, balance int) error {
			fence, err := fencing.Require(ctx, "a")
			require.NoError(t, err)
			return guarded{guard, store.Dialect}.write(context.WithoutCancel(ctx), db, 0, balance, fence)
		}

		require.NoError(t, mu.Lock(t.Context()))
		late, first := mu.Context(t.Context()), mu.Token()
		require.NoError(t, save(late, 10))
		require.NoError(t, mu.Unlock(t.Context()))
		require.NoError(t, mu.Lock(t.Context()))
		second := mu.Context(t.Context())
		require.NoError(t, save(second, 20))
		require.Equal(t, &fencing.StaleError{Resource: "a", Got: first, Seen: mu.Token()}, save(late, 11))
		require.NoError(t, save(second, 21))
		token := mu.Token()
		require.NoError(t, mu.Unlock(t.Context()))

		require.NoError(t, mu.RLock(t.Context()))
		require.NoError(t, mu.Upgrade(t.Context()))
		require.NoError(t, save(mu.Context(t.Context()), 30))
		require.Equal(t, &fencing.StaleError{Resource: "a", Got: token, Seen: mu.Token()}, save(second, 22))
		require.Equal(t, []int{30}, balances(t, db))
		require.NoError(t, mu.Unlock(t.Context()))
		require.EqualValues(t, 1, locker.Stats().Acquired, "under one lease")
	})
}

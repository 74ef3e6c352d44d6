package sqltest_test

import (
	"context"
	"database/sql"
	"flag"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

var crashes = flag.Int("sqltest.crashes", 0, "how often a PostgreSQL crashes between the claims, and inside the work")

// crash kills a process of the server, which takes that for a crash: it ends all transactions and recovers.
func crash(t *testing.T, db *sql.DB) {
	t.Helper()
	var pid int
	require.NoError(t, db.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		var started time.Time
		return db.Ping() == nil && db.QueryRow(`SELECT pg_postmaster_start_time()`).Scan(&started) == nil
	}, eventLimit, 10*time.Millisecond)
}

// A server that restarts between the claims, or between two statements of the work, keeps nothing of the transfer.
func TestServerThatRestartsInsideATransfer(t *testing.T) {
	if *crashes == 0 {
		t.Skip("asked for by -sqltest.crashes")
	}
	var own sqltest.Servers
	defer func() { require.NoError(t, own.Close()) }()
	store := own.Store("PostgreSQL")
	driver, dsn := store.Database(t)
	db := sqltest.Open(t, driver, dsn+"&synchronous_commit=on") // or a crash takes back what was committed just before
	guard := newGuard(t, store, db)
	makeAccounts(t, db, 2)
	fences := func(token fencing.Token) []fencing.Fence {
		return []fencing.Fence{account(1, token), account(0, token)}
	}
	transfer := func(token fencing.Token, inside func()) error {
		return guard.DoAll(t.Context(), db, fences(token), func(ctx context.Context, tx *sql.Tx) error {
			if err := add(ctx, tx, store.Dialect, 0, -5); err != nil {
				return err
			}
			inside()
			return add(ctx, tx, store.Dialect, 1, 5)
		})
	}
	for n := range *crashes {
		token := fencing.Token(10 * (n + 1))
		require.NoError(t, transfer(token, func() {}))
		want := balances(t, db)

		first := begin(t, db)
		require.NoError(t, guard.Claim(t.Context(), first, account(1, token+1)))
		done := make(chan error, 1)
		go func() { done <- transfer(token+2, func() { t.Error("work ran") }) }()
		awaitLockWait(t, store, db)
		crash(t, db)
		require.Error(t, <-done)
		require.Error(t, first.Commit())

		require.Error(t, transfer(token+3, func() { crash(t, db) }))
		require.Equal(t, want, balances(t, db))
		for id := range 2 {
			seen, err := guard.Seen(t.Context(), db, account(id, token).Resource)
			require.NoError(t, err)
			require.Equal(t, fencing.Registers{MaxWrite: token}, seen, "nothing of the claims is left")
		}
		require.NoError(t, transfer(token+1, func() {}))
	}
}

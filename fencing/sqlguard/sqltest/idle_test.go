package sqltest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// ending is the fence of a lease that has some time left.
type ending struct {
	f    fencing.Fence
	left time.Duration
}

func (e ending) Fence() fencing.Fence { return e.f }
func (e ending) Deadline() time.Time  { return time.Now().Add(e.left) }

// requireOvertaken pauses a holder inside its transaction until a newer one has written: only the server can let it in.
// On a busy machine the server may take the holder for paused before its work has begun; then it begins again.
func requireOvertaken(
	t *testing.T, ctx context.Context, d sqlguard.Dialect, holder, newer *sql.DB, guard *sqlguard.Guard,
) {
	t.Helper()
	makeAccounts(t, newer, 1)
	limit, cancel := context.WithTimeout(t.Context(), eventLimit)
	defer cancel()
	for ran := false; !ran; {
		err := guard.Do(ctx, holder, account(0, 5), func(_ context.Context, tx *sql.Tx) error {
			ran = true
			_ = updateBalance(t.Context(), tx, d, 0, 5)
			require.NoError(t, guard.Do(limit, newer, account(0, 6), func(ctx context.Context, tx *sql.Tx) error {
				return updateBalance(ctx, tx, d, 0, 6)
			}))
			return nil // and wake up
		})
		require.Error(t, err)
		require.NoError(t, limit.Err())
	}
	require.Equal(t, []int{6}, balances(t, newer))
}

func TestPausedHolderDoesNotBlockTheNext(t *testing.T) {
	store := servers.Store("PostgreSQL")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	ctx := fencing.NewSourceContext(t.Context(), ending{account(0, 5), time.Millisecond})
	requireOvertaken(t, ctx, store.Dialect, db, db, guard)
}

// What docs/fencing.md advises where a transaction cannot have a limit of its own: one of the connection.
func TestPausedHolderOnAConnectionWithALimit(t *testing.T) {
	for name, limit := range map[string]string{
		"MariaDB": "?idle_write_transaction_timeout=1",
		"MySQL":   "?wait_timeout=1",
	} {
		t.Run(name, func(t *testing.T) {
			store := servers.Store(name)
			driver, dsn := store.Database(t)
			newer, holder := sqltest.Open(t, driver, dsn), sqltest.Open(t, driver, dsn+limit)
			holder.SetMaxIdleConns(0) // MySQL's limit is also one for a connection that waits in the pool
			requireOvertaken(t, t.Context(), store.Dialect, holder, newer, newGuard(t, store, newer))
		})
	}
}

func TestIdleLimitIsThatOfTheTransactionAndTheLeast(t *testing.T) {
	store := servers.Store("PostgreSQL")
	driver, dsn := store.Database(t)
	lease := func(resource string, left time.Duration) context.Context {
		return fencing.NewSourceContext(t.Context(), ending{write(resource, 5), left})
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for name, c := range map[string]struct {
		ctx      context.Context
		own      string // the connection's
		min, max time.Duration
	}{
		"no deadline":         {t.Context(), "0", 0, 0},
		"a lease's":           {lease("a", time.Hour), "0", time.Minute, time.Hour},
		"the context's":       {soon, "0", time.Minute, time.Hour},
		"a longer own":        {lease("a", time.Hour), "2h", time.Minute, time.Hour},
		"a shorter own":       {soon, "30s", 30 * time.Second, 30 * time.Second},
		"a lease that is out": {lease("a", -time.Hour), "0", time.Second, time.Second},
		"another lock's":      {lease("b", time.Hour), "0", 0, 0},
		"beyond the server's": {distant(t), "0", 24 * 24 * time.Hour, 25 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			db := sqltest.Open(t, driver, dsn+"&idle_in_transaction_session_timeout="+c.own)
			db.SetMaxOpenConns(1)
			guard := newGuard(t, store, db)
			before, err := idleLimit(t, db)
			require.NoError(t, err)
			var inside time.Duration
			require.Eventually(t, func() bool { // the shortest may end the transaction of a test that is slow
				return guard.Do(c.ctx, db, write("a", 5), func(_ context.Context, tx *sql.Tx) (err error) {
					inside, err = idleLimit(t, tx)
					return err
				}) == nil
			}, eventLimit, time.Millisecond)
			require.GreaterOrEqual(t, inside, c.min)
			require.LessOrEqual(t, inside, c.max)
			after, err := idleLimit(t, db)
			require.NoError(t, err)
			require.Equal(t, before, after, "the limit ends with the transaction")
			err = guard.Do(c.ctx, db, write("a", 4), nothing)
			require.Equal(t, &fencing.StaleError{Resource: "a", Got: 4, Seen: 5}, err)
		})
	}
}

// idleLimit asks a connection, or a transaction, how long it may be idle in one; 0 is for ever.
func idleLimit(t *testing.T, tx sqlguard.Tx) (time.Duration, error) {
	var text string
	if err := tx.QueryRowContext(t.Context(), `SELECT extract(epoch FROM
		current_setting('idle_in_transaction_session_timeout')::interval) || 's'`).Scan(&text); err != nil {
		return 0, err
	}
	return time.ParseDuration(text)
}

func distant(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 1000*24*time.Hour)
	t.Cleanup(cancel)
	return ctx
}

func TestIdleLimitOfARealLease(t *testing.T) {
	store := servers.Store("PostgreSQL")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	locker, err := rwlock.New(testredis.Start(t).Client(t), rwlock.WithTTL(time.Hour))
	require.NoError(t, err)
	defer func() { require.NoError(t, locker.Close()) }()
	lease, err := locker.Lock(t.Context(), "a")
	require.NoError(t, err)
	defer func() { require.NoError(t, lease.Release(t.Context())) }()

	require.NoError(t, guard.Do(lease.Context(t.Context()), db, lease.Fence(), func(_ context.Context, tx *sql.Tx) error {
		limit, err := idleLimit(t, tx)
		require.Positive(t, limit)
		return err
	}))
}

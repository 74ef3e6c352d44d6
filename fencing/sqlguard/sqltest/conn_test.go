package sqltest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// connections returns the handles of one connection.
func connections(t *testing.T, store sqltest.Store, db *sql.DB) (*sql.Conn, map[string]sqlguard.DB) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, map[string]sqlguard.DB{"database/sql": conn, "sqlx": struct{ *sqlx.Conn }{&sqlx.Conn{Conn: conn}}}
}

// requireRefusedInside asks for each kind of Do on a connection that has a transaction.
func requireRefusedInside(
	t *testing.T, guard *sqlguard.Guard, handles map[string]sqlguard.DB, contexts ...context.Context,
) {
	t.Helper()
	work := func(context.Context, *sql.Tx) error { t.Error("work ran"); return nil }
	for name, handle := range handles {
		for _, ctx := range contexts {
			for _, f := range []fencing.Fence{write("other", 1), read("other", 1)} {
				require.ErrorIs(t, guard.Do(ctx, handle, f, work), sqlguard.ErrInTransaction, "%s, %v", name, f)
			}
		}
	}
}

// A second transaction on the connection would end the first one with its own COMMIT or ROLLBACK.
func TestDoOnTheConnectionOfAnotherDo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		conn, handles := connections(t, store, db)
		other := newGuard(t, store, db)
		for i, outer := range []sqlguard.DB{conn, handles["sqlx"]} {
			token := fencing.Token(5 + i)
			require.NoError(t, guard.Do(t.Context(), outer, account(0, token), func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, -1))
				requireRefusedInside(t, guard, handles, ctx, t.Context())
				requireRefusedInside(t, other, handles, ctx)
				done := make(chan struct{})
				go func() {
					defer close(done)
					requireRefusedInside(t, guard, handles, t.Context())
				}()
				<-done
				return updateBalance(ctx, tx, store.Dialect, 0, int(token))
			}))
			require.Equal(t, []int{int(token)}, balances(t, db), "the transaction was not harmed")
		}
		require.NoError(t, guard.Do(t.Context(), conn, read("a", 5), func(ctx context.Context, tx *sql.Tx) error {
			requireRefusedInside(t, guard, handles, ctx, t.Context())
			return tx.QueryRow(`SELECT 1`).Scan(new(int))
		}))
		require.Equal(t, errUndo, guard.Do(t.Context(), conn, account(0, 7), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, -1))
			requireRefusedInside(t, guard, handles, ctx)
			return errUndo
		}))
		require.Equal(t, []int{6}, balances(t, db), "rolled back as a whole")
		require.NoError(t, guard.Do(t.Context(), conn, write("other", 1), nothing), "the connection works as before")
	})
}

func TestDoOnTheConnectionOfATransactionOfOnesOwn(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		conn, handles := connections(t, store, db)
		own, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		requireRefusedInside(t, guard, handles, t.Context())
		require.NoError(t, guard.Claim(t.Context(), own, account(0, 5)))
		require.NoError(t, updateBalance(t.Context(), own, store.Dialect, 0, 5))
		requireRefusedInside(t, guard, handles, t.Context())
		require.NoError(t, own.Rollback())
		require.Equal(t, []int{0}, balances(t, db), "it was still open")
	})
}

// hidden is a connection that nothing shows to be one. PostgreSQL takes its second BEGIN.
type hidden struct {
	sqlguard.Tx
	begin func(context.Context, *sql.TxOptions) (*sql.Tx, error)
}

func (h hidden) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return h.begin(ctx, opts)
}

// What cannot be refused is found before the commit.
func TestDoThatAnotherUserOfItsConnectionHasEnded(t *testing.T) {
	store := servers.Store("PostgreSQL")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	makeAccounts(t, db, 1)
	conn, _ := connections(t, store, db)
	handle := hidden{conn, conn.BeginTx}
	undone := func(context.Context, *sql.Tx) error { return errUndo }
	for i, inner := range []func(context.Context, *sql.Tx) error{nothing, undone} {
		token := fencing.Token(5 + 10*i)
		err := guard.Do(t.Context(), handle, account(0, token), func(ctx context.Context, tx *sql.Tx) error {
			_ = guard.Do(ctx, handle, write("other", token), inner)
			require.NoError(t, guard.Do(t.Context(), db, account(0, token+1), nothing), "the claim is gone")
			return updateBalance(ctx, tx, store.Dialect, 0, -1)
		})
		require.ErrorIs(t, err, sqlguard.ErrTransactionEnded)
	}
}

// The second begins while the first is under way, and outlives it.
func TestTwoDoOnAConnectionThatEndEachOther(t *testing.T) {
	store := servers.Store("PostgreSQL")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	conn, _ := connections(t, store, db)
	handle := hidden{conn, conn.BeginTx}
	first, begun := make(chan error, 1), make(chan struct{})
	end := make(chan struct{})
	go func() {
		first <- guard.Do(t.Context(), handle, write("a", 5), func(context.Context, *sql.Tx) error {
			close(begun)
			<-end
			return nil
		})
	}()
	select {
	case <-begun:
	case err := <-first:
		t.Fatal(err)
	}
	second := guard.Do(t.Context(), handle, write("b", 5), func(context.Context, *sql.Tx) error {
		close(end)
		require.ErrorIs(t, <-first, sqlguard.ErrTransactionEnded)
		return nil
	})
	require.ErrorIs(t, second, sqlguard.ErrTransactionEnded)
}

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

// What docs/fencing-sql.md advises where a transaction cannot have a limit of its own: one of the connection.
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

// The first claim sets the limit, whichever lease ends first and in whichever mode it claims.
func TestIdleLimitOfSeveralLeasesIsTheLeast(t *testing.T) {
	store := servers.Store("PostgreSQL")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	for _, fences := range [][]fencing.Fence{
		{write("a", 5), write("b", 5), read("c", 5)},
		{read("a", 6), write("b", 6)},
		{write("c", 7), read("a", 7), read("b", 7)},
	} {
		for shortest := range fences {
			ctx := t.Context()
			for i, f := range fences {
				left := 3 * time.Hour
				if i == shortest {
					left = time.Hour
				}
				ctx = fencing.NewSourceContext(ctx, ending{f, left})
			}
			require.NoError(t, guard.DoAll(ctx, db, fences, func(_ context.Context, tx *sql.Tx) error {
				limit, err := idleLimit(t, tx)
				require.Greater(t, limit, time.Minute)
				require.LessOrEqual(t, limit, time.Hour)
				return err
			}))
		}
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

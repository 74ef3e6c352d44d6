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
)

// A second transaction on the connection would end the first one, of another Do or of the caller.
func TestDoOnAConnectionInATransaction(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		handles := []sqlguard.DB{conn, struct{ *sqlx.Conn }{&sqlx.Conn{Conn: conn}}}
		inside := func(ctx context.Context, tx *sql.Tx) error {
			for _, handle := range handles {
				for _, f := range []fencing.Fence{write("other", 1), read("other", 1)} {
					require.ErrorIs(t, guard.Do(ctx, handle, f, unreached(t)), sqlguard.ErrInTransaction, "%T, %v", handle, f)
				}
			}
			_, err := selectBalance(ctx, tx, store.Dialect, 0)
			return err
		}
		for i, outer := range handles {
			require.NoError(t, guard.Do(t.Context(), outer, account(0, 5), func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, updateBalance(ctx, tx, store.Dialect, 0, i+1))
				return inside(ctx, tx)
			}))
			require.Equal(t, []int{i + 1}, balances(t, db), "the transaction was not harmed")
		}
		require.NoError(t, guard.Do(t.Context(), conn, read("a", 5), inside))

		own, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, inside(t.Context(), own))
		require.NoError(t, guard.Claim(t.Context(), own, account(0, 6)))
		require.NoError(t, updateBalance(t.Context(), own, store.Dialect, 0, -1))
		require.NoError(t, inside(t.Context(), own))
		require.NoError(t, own.Rollback())
		require.Equal(t, []int{2}, balances(t, db), "it was still open")
		require.NoError(t, guard.Do(t.Context(), conn, write("other", 1), nothing), "the connection works as before")
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

// The second begins while the first is under way, and outlives it.
func TestTwoDoOnAConnectionThatEndEachOther(t *testing.T) {
	store := servers.Store("PostgreSQL")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
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

func TestIdleLimitIsThatOfTheTransactionAndTheLeast(t *testing.T) {
	store := servers.Store("PostgreSQL")
	driver, dsn := store.Database(t)
	lease := func(resource string, left time.Duration) context.Context {
		return fencing.NewSourceContext(t.Context(), ending{write(resource, 5), left})
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	distant, cancel := context.WithTimeout(t.Context(), 1000*24*time.Hour)
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
		"beyond the server's": {distant, "0", 24 * 24 * time.Hour, 25 * 24 * time.Hour},
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

// router sends read-only transactions to a replica, as proxies and some handles do.
type router struct {
	*sql.DB
	replica *sql.DB
}

func (r router) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	if opts != nil && opts.ReadOnly {
		return r.replica.BeginTx(ctx, opts)
	}
	return r.DB.BeginTx(ctx, opts)
}

// A second database plays the replica, so that the test decides how far it is behind.
func TestReadOnAReplicaThatLags(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, primary *sql.DB, guard *sqlguard.Guard) {
		replica := store.Open(t)
		require.NoError(t, guard.Create(t.Context(), replica))
		db := router{primary, replica}
		require.NoError(t, guard.Do(t.Context(), db, write("a", 10), nothing))

		require.ErrorIs(t, guard.Do(t.Context(), db, read("a", 11), unreached(t)), sqlguard.ErrClaimNotVisible)

		// The write has arrived, and the claim has not: a later write may be missing just as well.
		require.NoError(t, guard.Claim(t.Context(), replica, write("a", 10)))
		require.ErrorIs(t, guard.Do(t.Context(), db, read("a", 11), unreached(t)), sqlguard.ErrClaimNotVisible)

		require.NoError(t, guard.Claim(t.Context(), replica, read("a", 11)))
		require.NoError(t, guard.Do(t.Context(), db, read("a", 11), nothing))
	})
}

// An older holder has begun at one node. A newer one writes at the other node, which the first one hears of while the
// older one commits. The lock of the guard row is held at one node only, and the older holder's token is in the row
// already: its commit has to fail all the same.
func TestOlderHolderAtAnotherNode(t *testing.T) {
	nodes := servers.Galera(t)
	db := nodes[0]
	guard, err := sqlguard.New(sqlguard.MySQL)
	require.NoError(t, err)
	require.NoError(t, guard.Create(t.Context(), db))
	for _, table := range []string{"written", "gate"} {
		_, err := db.Exec(`CREATE TABLE ` + table + ` (token BIGINT PRIMARY KEY)`)
		require.NoError(t, err)
	}
	insert := func(token fencing.Token) work {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO written VALUES (?)`, token)
			return err
		}
	}
	for i, c := range []struct {
		name  string
		older func(name string, token fencing.Token, inside work) error
	}{
		{"Do", func(name string, token fencing.Token, inside work) error {
			return guard.Do(t.Context(), db, write(name, token), inside)
		}},
		{"DoAll, with a read beside the write", func(name string, token fencing.Token, inside work) error {
			return guard.DoAll(t.Context(), db, []fencing.Fence{read(name, token), write("other", token)}, inside)
		}},
		{"Claim of a write", func(name string, token fencing.Token, inside work) error {
			return ownTransaction(t, db, write(name, token), guard.Claim, inside)
		}},
		{"Claim of a read", func(name string, token fencing.Token, inside work) error {
			return ownTransaction(t, db, read(name, token), guard.Claim, inside)
		}},
		{"Derive", func(name string, token fencing.Token, inside work) error {
			return ownTransaction(t, db, read(name, token), guard.Derive, inside)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			token := fencing.Token(10 * (i + 1))
			require.NoError(t, c.older(c.name, token, nothing), "its token is in the row from here on")
			require.Eventually(t, func() bool {
				seen, err := guard.Seen(t.Context(), nodes[1], c.name)
				own, _ := guard.Seen(t.Context(), db, c.name)
				return err == nil && seen == own
			}, eventLimit, time.Millisecond, "the other node has heard of it")

			err := c.older(c.name, token, func(ctx context.Context, tx *sql.Tx) error {
				open := holdReplication(t, nodes, i)
				go open()
				require.NoError(t, guard.Do(t.Context(), nodes[1], write(c.name, token+1), insert(token+1)))
				return insert(token)(ctx, tx)
			})
			require.True(t, sqlguard.IsConflict(err), "%v", err)
			var stale *fencing.StaleError
			require.ErrorAs(t, c.older(c.name, token, nothing), &stale)
			var n int
			require.NoError(t, db.QueryRow(`SELECT count(*) FROM written WHERE token = ?`, token).Scan(&n))
			require.Zero(t, n, "a stale write")
		})
	}
}

// holdReplication keeps the first node from doing what the other one has done, by a lock on a table that the other one
// writes to now. What it returns waits for a COMMIT at the first node, and lets go.
func holdReplication(t *testing.T, nodes [2]*sql.DB, row int) (open func()) {
	lock, err := nodes[0].Conn(t.Context())
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), `LOCK TABLES gate READ`)
	require.NoError(t, err)
	_, err = nodes[1].ExecContext(t.Context(), `INSERT INTO gate VALUES (?)`, row)
	require.NoError(t, err)
	return func() {
		defer func() { _ = lock.Close() }()
		for n := 0; n == 0 && t.Context().Err() == nil; {
			_ = nodes[0].QueryRowContext(t.Context(), `SELECT count(*) FROM information_schema.processlist
				WHERE db = database() AND info = 'COMMIT'`).Scan(&n)
		}
		_, _ = lock.ExecContext(t.Context(), `UNLOCK TABLES`)
	}
}

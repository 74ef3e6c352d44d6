package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
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
		for token, outer := range map[fencing.Token]sqlguard.DB{5: conn, 6: handles["sqlx"]} {
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
	for token, inner := range map[fencing.Token]func(context.Context, *sql.Tx) error{
		5: nothing, 15: func(context.Context, *sql.Tx) error { return errUndo },
	} {
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

package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
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

// texts are the recipes of a dialect.
type texts struct{ update, upsert, lookup string }

func textsOf(d sqlguard.Dialect) texts {
	if d == sqlguard.MySQL {
		return texts{
			update: `UPDATE accounts SET balance = ?, fence = LAST_INSERT_ID(?) WHERE id = ? AND fence <= ?`,
			upsert: `INSERT INTO accounts (id, balance, fence) VALUES (?, ?, ?)
				ON DUPLICATE KEY UPDATE
				balance = IF(fence <= VALUES(fence), VALUES(balance), balance), fence = GREATEST(fence, VALUES(fence))`,
			lookup: `SELECT fence FROM accounts WHERE id = ?`,
		}
	}
	t := texts{
		update: `UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $4`,
		upsert: `INSERT INTO accounts (id, balance, fence) VALUES ($1, $2, $3)
			ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
			WHERE accounts.fence <= excluded.fence`,
		lookup: `SELECT fence FROM accounts WHERE id = $1`,
	}
	if d == sqlguard.SQLite {
		t.update = strings.ReplaceAll(t.update, "$", "?")
		t.upsert = strings.ReplaceAll(t.upsert, "$", "?")
		t.lookup = strings.ReplaceAll(t.lookup, "$", "?")
	}
	return t
}

func account(id int, token fencing.Token) fencing.Fence {
	return write(fmt.Sprint("accounts/", id), token)
}

func update(t testing.TB, d sqlguard.Dialect, tx sqlguard.Tx, id, balance int, token fencing.Token) error {
	t.Helper()
	result, err := tx.ExecContext(t.Context(), textsOf(d).update, balance, token, id, token)
	require.NoError(t, err)
	return d.CheckUpdate(t.Context(), tx, account(id, token), result, textsOf(d).lookup, id)
}

func upsert(t testing.TB, d sqlguard.Dialect, tx sqlguard.Tx, id, balance int, token fencing.Token) error {
	t.Helper()
	result, err := tx.ExecContext(t.Context(), textsOf(d).upsert, id, balance, token)
	require.NoError(t, err)
	return d.CheckUpsert(t.Context(), tx, account(id, token), result, textsOf(d).lookup, id)
}

// onEveryRowStore runs a test on each store, and on MariaDB and MySQL also with a
// client that counts found rows instead of changed ones.
func onEveryRowStore(t *testing.T, test func(*testing.T, sqlguard.Dialect, *sql.DB)) {
	t.Helper()
	for _, store := range servers.Stores() {
		t.Run(store.Name, func(t *testing.T) { test(t, store.Dialect, store.Open(t)) })
		if store.Dialect == sqlguard.MySQL {
			t.Run(store.Name+", found rows", func(t *testing.T) {
				driver, dsn := store.Database(t)
				test(t, store.Dialect, sqltest.Open(t, driver, dsn+"?clientFoundRows=true"))
			})
		}
	}
}

func TestFenceColumn(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 1)
		require.NoError(t, update(t, d, db, 0, 10, 5))
		require.NoError(t, update(t, d, db, 0, 10, 5), "the same values again")
		require.NoError(t, update(t, d, db, 0, 11, 5), "the same token again")
		require.NoError(t, update(t, d, db, 0, 11, 7))
		require.Equal(t, &fencing.StaleError{Resource: "accounts/0", Got: 6, Seen: 7}, update(t, d, db, 0, 99, 6))
		require.ErrorIs(t, update(t, d, db, 1, 99, 6), sqlguard.ErrNoRow)
		require.NotErrorIs(t, update(t, d, db, 1, 99, 6), fencing.ErrStale)
		require.Equal(t, []int{11}, balances(t, db))
	})
}

func TestFencedUpsert(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 0)
		require.NoError(t, upsert(t, d, db, 0, 10, 5), "inserts")
		require.NoError(t, upsert(t, d, db, 0, 10, 5), "the same values again")
		require.NoError(t, upsert(t, d, db, 0, 11, 5), "the same token again")
		require.NoError(t, upsert(t, d, db, 0, 11, 7))
		require.Equal(t, &fencing.StaleError{Resource: "accounts/0", Got: 6, Seen: 7}, upsert(t, d, db, 0, 99, 6))
		require.NoError(t, upsert(t, d, db, 1, 20, 6))
		require.Equal(t, []int{11, 20}, balances(t, db))
	})
}

// The snapshot of a transaction may be older than what its UPDATE was refused by;
// it holds the caller's own, equal token.
func TestRefusedUpdateInATransactionWithASnapshot(t *testing.T) {
	store := servers.Stores()[1]
	db := store.Open(t)
	makeAccounts(t, db, 1)
	require.NoError(t, update(t, store.Dialect, db, 0, 10, 5))

	old, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer func() { _ = old.Rollback() }()
	var balance int
	require.NoError(t, old.QueryRow(`SELECT balance FROM accounts`).Scan(&balance))

	require.NoError(t, update(t, store.Dialect, db, 0, 20, 6))
	require.ErrorIs(t, update(t, store.Dialect, old, 0, 99, 5), fencing.ErrStale)
	require.ErrorIs(t, upsert(t, store.Dialect, old, 0, 99, 5), fencing.ErrStale)
}

// The row came into being after the UPDATE had found none: nothing was written,
// so it must not count as success. With an equal token MySQL cannot tell it from
// a row that was there; only statements of one holder can do that to each other.
func TestRowThatAppearsAfterTheUpdate(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 0)
		text := textsOf(d)
		for id, token := range []fencing.Token{4, 5} {
			if d == sqlguard.MySQL && token == 5 {
				continue
			}
			result, err := db.Exec(text.update, 10, 5, id, 5)
			require.NoError(t, err)
			_, err = db.Exec(fmt.Sprintf(`INSERT INTO accounts VALUES (%d, 0, %d)`, id, token))
			require.NoError(t, err)
			err = d.CheckUpdate(t.Context(), db, account(id, 5), result, text.lookup, id)
			require.ErrorIs(t, err, sqlguard.ErrNoRow)
		}
	})
}

func TestLookupThatFails(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, d sqlguard.Dialect, db *sql.DB) {
		makeAccounts(t, db, 0)
		result, err := db.Exec(textsOf(d).update, 10, 5, 0, 5)
		require.NoError(t, err)
		err = d.CheckUpdate(t.Context(), db, account(0, 5), result, `SELECT no_such_column FROM accounts`)
		require.ErrorContains(t, err, "no_such_column")
		require.NotErrorIs(t, err, fencing.ErrStale)
		require.NotErrorIs(t, err, sqlguard.ErrNoRow)
	})
}

// locker is one process's access to a lock service.
type locker interface {
	lock(ctx context.Context, resource string) (lease, error)
}

type lease interface {
	fence() fencing.Fence
	pause() // while the holder is stalled, its lease ends
	lost() bool
	unlock()
}

// ledger is a lock service without a clock: exclusive, with increasing tokens, and
// with leases that end at the one moment that matters.
type ledger struct {
	mu      sync.Mutex
	changed sync.Cond
	token   fencing.Token
	held    map[string]fencing.Token
}

func newLedger() *ledger {
	l := &ledger{held: map[string]fencing.Token{}}
	l.changed.L = &l.mu
	return l
}

func (l *ledger) lock(_ context.Context, resource string) (lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.held[resource] != 0 {
		l.changed.Wait()
	}
	l.token++
	l.held[resource] = l.token
	return entry{l, write(resource, l.token)}, nil
}

type entry struct {
	ledger *ledger
	f      fencing.Fence
}

func (e entry) fence() fencing.Fence { return e.f }

func (e entry) pause() { e.unlock() }

func (e entry) lost() bool {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	return e.ledger.held[e.f.Resource] != e.f.Token
}

func (e entry) unlock() {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	if e.ledger.held[e.f.Resource] == e.f.Token {
		delete(e.ledger.held, e.f.Resource)
		e.ledger.changed.Broadcast()
	}
}

// leaseTTL is short for the test's sake. A session takes some 20 ms; one that takes
// longer than this is a stalled holder that nobody had planned.
const leaseTTL = 250 * time.Millisecond

// remote is a locker of this module's own, on a Redis. Its leases are not renewed,
// as those of a process that stands still, so they end while the holder is
// stalled; that the holder notices nothing is up to it.
type remote struct{ locker *rwlock.Locker }

func newRemote(t *testing.T, server *testredis.Server) remote {
	t.Helper()
	locker, err := rwlock.New(server.Client(t), rwlock.WithTTL(leaseTTL), rwlock.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	return remote{locker}
}

func (r remote) lock(ctx context.Context, resource string) (lease, error) {
	held, err := r.locker.Lock(ctx, resource)
	if err != nil {
		return nil, err
	}
	return remoteLease{held, held.Fence()}, nil
}

type remoteLease struct {
	lease *rwlock.Lease
	f     fencing.Fence
}

func (l remoteLease) fence() fencing.Fence { return l.f }

func (remoteLease) pause() {}

func (l remoteLease) lost() bool { return l.lease.Err() != nil }

func (l remoteLease) unlock() { _ = l.lease.Release(context.Background()) } // it may be lost

// Whatever becomes of a read, its connection writes as before.
func TestReadsLeaveNothingBehindOnTheConnection(t *testing.T) {
	store := servers.Store("SQLite")
	db := store.Open(t)
	guard := newGuard(t, store, db)
	db.SetMaxOpenConns(1)
	makeAccounts(t, db, 1)
	spoil := func(_ context.Context, tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE accounts SET balance = -1 WHERE id = 0`)
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, guard.Do(ctx, db, read("a", 5), spoil), sqlguard.ErrReadOnly)
	require.ErrorIs(t, guard.Do(ctx, db, read("a", 5), func(ctx context.Context, tx *sql.Tx) error {
		defer cancel()
		return spoil(ctx, tx)
	}), context.Canceled)
	require.PanicsWithValue(t, "boom", func() {
		_ = guard.Do(t.Context(), db, read("a", 5), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, spoil(ctx, tx))
			panic("boom")
		})
	})
	require.Equal(t, []int{0}, balances(t, db))
	require.NoError(t, guard.Do(t.Context(), db, write("a", 6), spoil))
	require.Equal(t, []int{-1}, balances(t, db))
}

// A register that no holder has raised, such as one that was written by hand, and to which no one can be added.
func TestRegisterBeyondEveryToken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		require.NoError(t, guard.Claim(t.Context(), db, write("a", 5)))
		_, err := db.Exec(`UPDATE fencelock_guard SET max_write = 9223372036854775807`)
		require.NoError(t, err)
		for _, f := range []fencing.Fence{read("a", 6), write("a", 6)} {
			err := guard.Claim(t.Context(), db, f)
			require.Error(t, err)
			if store.Dialect == sqlguard.MySQL {
				require.ErrorIs(t, err, sqlguard.ErrNoVerdict)
			}
		}
	})
}

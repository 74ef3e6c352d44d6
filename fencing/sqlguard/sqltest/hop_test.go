package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// post calls a service with the fences of ctx; a refusal comes back as the error that it was.
func post(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: &httpfence.Transport{Base: transport}}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return httpfence.ResponseError(resp)
}

// newShop is the first hop: it knows nothing of tokens but that they travel.
func newShop(bankURL string) http.Handler {
	return httpfence.Extract(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := post(r.Context(), bankURL); err != nil {
			httpfence.WriteProblem(w, err)
		}
	}))
}

// newBank is the second hop, the one that has the database.
func newBank(db *sql.DB, guard *sqlguard.Guard) http.Handler {
	return httpfence.Extract(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fence, err := fencing.Require(r.Context(), "accounts/7")
		if err == nil {
			err = guard.Do(r.Context(), db, fence, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance - 10 WHERE id = 7`)
				return err
			})
		}
		if err != nil {
			httpfence.WriteProblem(w, err)
		}
	}))
}

// Two services and a database, and no argument is a token: it goes from the
// context over HTTP twice into the transaction, and the refusal back.
func Example_twoHops() {
	db, guard, end := open(`CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER)`,
		`INSERT INTO accounts VALUES (7, 100)`)
	defer end()
	bank := httptest.NewServer(newBank(db, guard))
	defer bank.Close()
	shop := httptest.NewServer(newShop(bank.URL))
	defer shop.Close()

	fmt.Println(post(held(write("accounts/7", 34)), shop.URL)) // ctx is lease.Context(parent)
	fmt.Println(post(held(write("accounts/7", 33)), shop.URL))
	err := post(context.Background(), shop.URL)
	fmt.Println(errors.Is(err, fencing.ErrMissing))
	// Output:
	// <nil>
	// fencing: stale token: "accounts/7" has seen 34, got 33
	// true
}

// The same from a real lock to each real database: a holder whose lease has run out is refused two services away.
func TestFromTheLeaseToTheDatabase(t *testing.T) {
	redis := testredis.Start(t)
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 8)
		bank := httptest.NewServer(newBank(db, guard))
		defer bank.Close()
		shop := httptest.NewServer(newShop(bank.URL))
		defer shop.Close()

		locker, err := rwlock.New(redis.Client(t), rwlock.WithPrefix(store.Name), testredis.Patience())
		require.NoError(t, err)
		defer func() { require.NoError(t, locker.Close()) }()

		paused, err := locker.Lock(t.Context(), "accounts/7", rwlock.WithTTL(500*time.Millisecond), rwlock.WithoutRenewal())
		require.NoError(t, err)
		unaware := context.WithoutCancel(paused.Context(t.Context()))
		require.NoError(t, post(unaware, shop.URL))

		// Granted when the first lease has expired.
		lease, err := locker.Lock(t.Context(), "accounts/7")
		require.NoError(t, err)
		ctx := lease.Context(t.Context())
		require.NoError(t, post(ctx, shop.URL))
		require.NoError(t, post(ctx, shop.URL))

		err = post(unaware, shop.URL)
		require.Equal(t, &fencing.StaleError{Resource: "accounts/7", Got: paused.Token(), Seen: lease.Token()}, err)
		require.Equal(t, -30, balances(t, db)[7])
		require.NoError(t, lease.Release(t.Context()))
	})
}

// Writers of one process follow each other under one lease on Redis, each with a token of its own: one that writes
// after its Unlock is refused as soon as its successor has written, be that the next writer, or a reader that has
// become one.
func TestALateWriterOfTheSameProcess(t *testing.T) {
	redis := testredis.Start(t)
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		makeAccounts(t, db, 1)
		locker, err := rwlock.New(redis.Client(t), rwlock.WithPrefix(store.Name), testredis.Patience())
		require.NoError(t, err)
		defer func() { require.NoError(t, locker.Close()) }()
		mu := locker.RWMutex("a", rwlock.WithLinger(time.Minute))
		save := func(ctx context.Context, balance int) error {
			fence, err := fencing.Require(ctx, "a")
			require.NoError(t, err)
			return guard.Do(context.WithoutCancel(ctx), db, fence, func(ctx context.Context, tx *sql.Tx) error {
				return updateBalance(ctx, tx, store.Dialect, 0, balance)
			})
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

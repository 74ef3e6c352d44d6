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

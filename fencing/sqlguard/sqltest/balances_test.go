package sqltest_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

const (
	increments = 2_000 // accepted ones, of each run on each store
	processes  = 8     // each with a locker and a connection pool of its own
	accounts   = 16
	session    = 10 // increments that a holder makes from one read
)

// bank is a way to read and write accounts under a lock. Both are one transaction
// each; read is the first that a holder does.
type bank interface {
	read(ctx context.Context, db *sql.DB, id int, f fencing.Fence) (balance int, err error)
	write(ctx context.Context, db *sql.DB, id, balance int, f fencing.Fence) error
}

// service makes the lockers of a run.
type service struct {
	locker func() locker
	stalls int // one in so many increments is made after a stall, on average
}

// Holders cache the balance while they hold the lock, add one and write it back,
// and some fall asleep in between until their lock is another's.
func TestBalances(t *testing.T) {
	t.Parallel()
	for _, store := range servers.Stores() {
		guard, err := sqlguard.New(store.Dialect)
		require.NoError(t, err)
		ledgers := func() service {
			shared := newLedger()
			return service{func() locker { return shared }, 100}
		}
		t.Run(store.Name+"/guard table", func(t *testing.T) {
			t.Parallel()
			requireExact(t, store, ledgers(), guarded{guard, store.Dialect})
		})
		t.Run(store.Name+"/fence column", func(t *testing.T) {
			t.Parallel()
			requireExact(t, store, ledgers(), fenced{store.Dialect})
		})
		t.Run(store.Name+"/no guard", func(t *testing.T) {
			t.Parallel()
			requireLost(t, store, ledgers(), unguarded{store.Dialect})
		})
	}
}

// The same with this module's locks on a real Redis, where a stall lasts until the
// lease has expired there.
func TestBalancesUnderRealLocks(t *testing.T) {
	t.Parallel()
	for _, store := range servers.Stores() {
		guard, err := sqlguard.New(store.Dialect)
		require.NoError(t, err)
		locks := func(t *testing.T) service {
			redis := testredis.Start(t)
			return service{func() locker { return newRemote(t, redis) }, 200}
		}
		t.Run(store.Name+"/guard table", func(t *testing.T) {
			t.Parallel()
			requireExact(t, store, locks(t), guarded{guard, store.Dialect})
		})
		t.Run(store.Name+"/no guard", func(t *testing.T) {
			t.Parallel()
			requireLost(t, store, locks(t), unguarded{store.Dialect})
		})
	}
}

func requireExact(t *testing.T, store sqltest.Store, locks service, b bank) {
	t.Helper()
	got, stored := run(t, store, locks, b)
	require.NotZero(t, got.stale.Load(), "nobody was overtaken")
	require.Equal(t, got.stale.Load(), got.refused.Load(), "every stale write is refused")
	for id, balance := range stored {
		require.EqualValues(t, got.accepted[id].Load(), balance, "account %d", id)
	}
	t.Logf("%d increments, none lost; %d stale writes, all refused", got.total(), got.refused.Load())
}

func requireLost(t *testing.T, store sqltest.Store, locks service, b bank) {
	t.Helper()
	got, stored := run(t, store, locks, b)
	require.NotZero(t, got.stale.Load(), "nobody was overtaken")
	lost := got.total()
	for _, balance := range stored {
		lost -= int64(balance)
	}
	require.Positive(t, lost, "or the runs with a guard prove nothing")
	t.Logf("%d stale writes accepted; %d of %d increments lost", got.stale.Load(), lost, got.total())
}

// outcome is what a run counted.
type outcome struct {
	accepted [accounts]atomic.Int64
	stale    atomic.Int64 // writes attempted after a newer holder had claimed
	refused  atomic.Int64 // those of them that the store refused
}

func (o *outcome) total() (n int64) {
	for i := range o.accepted {
		n += o.accepted[i].Load()
	}
	return n
}

// run makes the increments and returns what was counted and the balances.
func run(t *testing.T, store sqltest.Store, locks service, b bank) (*outcome, []int) {
	t.Helper()
	driver, dsn := store.Database(t)
	db := sqltest.Open(t, driver, dsn)
	newGuard(t, store, db)
	makeAccounts(t, db, accounts)

	var got outcome
	var begun atomic.Int64 // increments that somebody makes or has made
	stalls := newStalls()
	group, ctx := errgroup.WithContext(t.Context())
	for range processes {
		p := &process{
			bank: b, db: sqltest.Open(t, driver, dsn), locker: locks.locker(),
			stalls: stalls, stallEvery: locks.stalls, begun: &begun, got: &got,
		}
		group.Go(func() error {
			defer stalls.close()
			for begun.Load() < increments {
				if err := p.session(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, increments, got.total())
	return &got, balances(t, db)
}

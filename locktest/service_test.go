package locktest_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/locktest"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// docs/integrations.md names this file: a service, and the tests of its use of locks.

// Locker is what this service needs of a lock. A *rwlock.Locker has it, and so have *reentrant.Locker and a fake.
type Locker interface {
	Do(ctx context.Context, name string, fn func(context.Context) error, opts ...rwlock.LockOption) error
}

var (
	_ Locker = (*rwlock.Locker)(nil)
	_ Locker = (*reentrant.Locker)(nil)
)

// Orders pays orders, one process at a time for each order.
type Orders struct {
	Locks Locker
	Store Store
}

// Store is a database that refuses stale fences.
type Store interface {
	Paid(ctx context.Context, order string) (bool, error)
	Pay(ctx context.Context, fence fencing.Fence, order string) error
}

func (o Orders) Pay(ctx context.Context, order string) error {
	err := o.Locks.Do(ctx, order, func(ctx context.Context) error {
		fence, err := fencing.Require(ctx, order)
		if err != nil {
			return err
		}
		if paid, err := o.Store.Paid(ctx, order); err != nil || paid {
			return err
		}
		return o.Store.Pay(ctx, fence, order)
	}, rwlock.WithMaxWait(5*time.Second))
	if rwlock.Completed(err) { // lost after the store had accepted the payment
		return nil
	}
	return err
}

// memory is a Store for tests. Between its answer to Paid and the payment it calls between, if that is set.
type memory struct {
	guard   fencing.Watermark
	paid    []string
	between func(ctx context.Context)
}

func (m *memory) Paid(ctx context.Context, order string) (bool, error) {
	paid := slices.Contains(m.paid, order)
	if m.between != nil {
		m.between(ctx)
	}
	return paid, context.Cause(ctx)
}

func (m *memory) Pay(ctx context.Context, fence fencing.Fence, order string) error {
	return m.guard.Do(ctx, fence, func(context.Context) error {
		m.paid = append(m.paid, order)
		return nil
	})
}

func TestPay(t *testing.T) {
	locks, store := locktest.New(t), &memory{}
	require.NoError(t, Orders{locks, store}.Pay(t.Context(), "order:7"))
	require.Equal(t, []string{"order:7"}, store.paid)
}

// Another process holds the lock. In a bubble the five seconds of WithMaxWait take no time.
func TestPayGivesUpWhileAnotherProcessPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, store := locktest.New(t), &memory{}
		held := locks.Hold("order:7")
		err := Orders{locks, store}.Pay(t.Context(), "order:7")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		require.Empty(t, store.paid)

		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, Orders{locks, store}.Pay(t.Context(), "order:7"))
	})
}

// The lock is lost between the question and the payment: the context has ended, and nothing is paid.
func TestPayStopsWhenTheLockIsLost(t *testing.T) {
	locks, store := locktest.New(t), &memory{}
	store.between = func(context.Context) { locks.Lose("order:7") }
	err := Orders{locks, store}.Pay(t.Context(), "order:7")
	require.ErrorIs(t, err, rwlock.ErrLost)
	require.Empty(t, store.paid)
}

// The process is paused between the question and the payment, for longer than its lease lasts, and another process
// pays. When the first one goes on, it does not know that: its context is alive. The store refuses its fence.
func TestPayIsRefusedAfterAPause(t *testing.T) {
	locks, store := locktest.New(t), &memory{}
	store.between = func(ctx context.Context) {
		store.between = nil
		locks.Advance(time.Minute)
		require.NoError(t, Orders{locks.Another(), store}.Pay(t.Context(), "order:7"))
		require.NoError(t, ctx.Err())
	}
	err := Orders{locks, store}.Pay(t.Context(), "order:7")
	require.ErrorIs(t, err, fencing.ErrStale)
	require.Equal(t, []string{"order:7"}, store.paid)
}

// alone is a Locker for tests of what happens under the lock: no server, no other process.
type alone struct{ token fencing.Token }

func (a *alone) Do(
	ctx context.Context, name string, fn func(context.Context) error, _ ...rwlock.LockOption,
) error {
	a.token++
	return fn(fencing.NewContext(ctx, fencing.Fence{Resource: name, Token: a.token, Mode: fencing.Write}))
}

func TestPayWithoutAServer(t *testing.T) {
	store := &memory{}
	orders := Orders{new(alone), store}
	require.NoError(t, orders.Pay(t.Context(), "order:7"))
	require.NoError(t, orders.Pay(t.Context(), "order:7"))
	require.Equal(t, []string{"order:7"}, store.paid)
}

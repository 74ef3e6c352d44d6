package oldlock_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/examples/recipes/oldlock"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/locktest"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	name   = "invoice:7"
	expiry = 8 * time.Second
)

// A process of the release before, which takes the old lock alone, stays out while both are held, and gets in then.
func TestTheOldLockIsExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mutexes := servers(t)
		locks := locktest.New(t)
		before := func() error { return mutexes.NewMutex(name, redsync.WithTries(1)).LockContext(t.Context()) }
		taken := (*redsync.ErrTaken)(nil)

		// For three expiries it waits for the new lock, and works for as long.
		other := locks.Hold(name)
		ended := make(chan error, 1)
		go func() {
			ended <- oldlock.Both(t.Context(), mutexes.NewMutex(name), expiry, locks.Locker, name,
				func(ctx context.Context) error {
					time.Sleep(3 * expiry)
					return ctx.Err()
				})
		}()
		for at := range 5 {
			time.Sleep(expiry)
			require.ErrorAs(t, before(), &taken, "after %d expiries", at+1)
			if at == 2 {
				require.NoError(t, other.Release(t.Context()))
			}
		}
		require.NoError(t, <-ended)
		require.NoError(t, before())
	})
}

// The old lock is granted after a wait of several expiries, and the work takes as long.
func TestTheOldLockIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mutexes := servers(t)
		require.NoError(t, mutexes.NewMutex(name, redsync.WithExpiry(3*expiry)).LockContext(t.Context()))
		old := mutexes.NewMutex(name, redsync.WithTries(1000))
		err := oldlock.Both(t.Context(), old, expiry, locktest.New(t).Locker, name, func(ctx context.Context) error {
			time.Sleep(3 * expiry)
			return ctx.Err()
		})
		require.NoError(t, err)
	})
}

// What the old lock does in the place of what it is asked for.
type faulty struct {
	oldlock.Lock
	extend func(context.Context) (bool, error)
	unlock func(context.Context) (bool, error)
}

func (f *faulty) ExtendContext(ctx context.Context) (bool, error) { return f.extend(ctx) }
func (f *faulty) UnlockContext(ctx context.Context) (bool, error) { return f.unlock(ctx) }

func TestTheOldLockIsLost(t *testing.T) {
	for what, extend := range map[string]func(context.Context) (bool, error){
		"taken":    func(context.Context) (bool, error) { return false, nil },
		"no Redis": func(context.Context) (bool, error) { return false, errors.New("connection refused") },
		"silent": func(ctx context.Context) (bool, error) {
			time.Sleep(10 * expiry) // it does not look at ctx
			return true, nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := locktest.New(t)
				old := &faulty{Lock: servers(t).NewMutex(name)}
				old.extend = func(ctx context.Context) (bool, error) {
					old.extend = extend // the first one succeeds
					return old.Lock.ExtendContext(ctx)
				}
				old.unlock = old.Lock.UnlockContext
				begun := time.Now()
				err := oldlock.Both(t.Context(), old, expiry, locks.Locker, name, func(ctx context.Context) error {
					select {
					case <-ctx.Done():
					case <-time.After(expiry):
					}
					require.Less(t, time.Since(begun), expiry, "before another process can get the old lock")
					require.ErrorIs(t, context.Cause(ctx), oldlock.ErrLost)
					return nil
				})
				require.ErrorIs(t, err, oldlock.ErrLost)
				ran, err := locks.TryDo(t.Context(), name, func(context.Context) error { return nil })
				require.NoError(t, err)
				require.True(t, ran)
			})
		})
	}
}

// It was lost while LockContext waited for its answer: the work does not begin.
func TestALossBeforeTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		old := &faulty{Lock: servers(t).NewMutex(name), extend: func(context.Context) (bool, error) { return false, nil }}
		old.unlock = old.Lock.UnlockContext
		never := func(context.Context) error { panic("it runs") }
		require.ErrorIs(t, oldlock.Both(t.Context(), old, expiry, locks.Locker, name, never), oldlock.ErrLost)
	})
}

// It was lost after the last extension. An error of the work comes first.
func TestALossThatTheEndFinds(t *testing.T) {
	own := errors.New("own")
	for _, work := range []error{nil, own} {
		synctest.Test(t, func(t *testing.T) {
			locks := locktest.New(t)
			old := &faulty{Lock: servers(t).NewMutex(name), unlock: func(context.Context) (bool, error) { return false, nil }}
			old.extend = old.Lock.ExtendContext
			err := oldlock.Both(t.Context(), old, expiry, locks.Locker, name, func(context.Context) error { return work })
			if work == nil {
				require.ErrorIs(t, err, oldlock.ErrLost)
				return
			}
			require.Equal(t, own, err)
		})
	}
}

// The caller gives up, before and after it has the new lock. The old lock is free at once.
func TestTheCallerGivesUp(t *testing.T) {
	for _, waits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			mutexes := servers(t)
			locks := locktest.New(t)
			if waits {
				locks.Hold(name)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*expiry)
			defer cancel()
			err := oldlock.Both(ctx, mutexes.NewMutex(name), expiry, locks.Locker, name, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, oldlock.ErrLost)
			require.NotErrorIs(t, err, rwlock.ErrLost)
			require.NoError(t, mutexes.NewMutex(name, redsync.WithTries(1)).LockContext(t.Context()))
		})
	}
}

func TestTheOldLockIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mutexes := servers(t)
		require.NoError(t, mutexes.NewMutex(name).LockContext(t.Context()))
		never := func(context.Context) error { panic("it runs") }
		old := mutexes.NewMutex(name, redsync.WithTries(1))
		err := oldlock.Both(t.Context(), old, expiry, locktest.New(t).Locker, name, never)
		require.Error(t, err)
		require.NotErrorIs(t, err, oldlock.ErrLost)
	})
}

// servers returns redsync over a server of the bubble. Its default expiry is the one of these tests.
func servers(t *testing.T) *redsync.Redsync {
	t.Helper()
	link := testredis.NewMini(t).NewLink()
	client := redis.NewClient(&redis.Options{
		Addr: "192.0.2.1:6379", // no name, which it would resolve outside of the bubble; the dialer has another way
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return link.Option().DialCtxFn(ctx, addr, new(net.Dialer), nil)
		},
		DisableIdentity: true,
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return redsync.New(goredis.NewPool(client))
}

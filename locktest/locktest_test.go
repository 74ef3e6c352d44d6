package locktest_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/locktest"
	"github.com/seed74116694/fencelock/rwlock"
)

// inBothTimes runs a test in real time and in a bubble.
func inBothTimes(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Run("real time", test)
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, test) })
}

func TestHoldIsInTheWay(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		locks := locktest.New(t, rwlock.WithPrefix("mine"))
		held := locks.Hold("a")
		_, err := locks.TryLock(t.Context(), "a")
		var refused *rwlock.AcquireError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "another process", refused.Holder.Meta)

		got := make(chan *rwlock.Lease)
		go func() {
			lease, err := locks.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		require.Eventually(t, func() bool { return locks.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
		require.NoError(t, held.Release(t.Context()))
		lease := <-got
		require.Greater(t, lease.Token(), held.Token())
		require.NoError(t, lease.Release(t.Context()))
		locks.Hold("a")
	})
}

// holders take the lock "a" in every form, and return the context that ends with it and what gives the lock back.
var holders = map[string]func(*testing.T, *locktest.Locker) (context.Context, func(context.Context) error){
	"Lock": func(t *testing.T, l *locktest.Locker) (context.Context, func(context.Context) error) {
		lease := expect.NoError(l.Lock(t.Context(), "a")).In(t)
		return lease.Context(t.Context()), lease.Release
	},
	"RLock": func(t *testing.T, l *locktest.Locker) (context.Context, func(context.Context) error) {
		lease := expect.NoError(l.RLock(t.Context(), "a")).In(t)
		return lease.Context(t.Context()), lease.Release
	},
	"RLock of two": func(t *testing.T, l *locktest.Locker) (context.Context, func(context.Context) error) {
		first := expect.NoError(l.RLock(t.Context(), "a")).In(t)
		second := expect.NoError(l.Another().RLock(t.Context(), "a")).In(t)
		return first.Context(second.Context(t.Context())), second.Release
	},
	"RWMutex": func(t *testing.T, l *locktest.Locker) (context.Context, func(context.Context) error) {
		mu := l.RWMutex("a")
		require.NoError(t, mu.Lock(t.Context()))
		return mu.Context(t.Context()), mu.Unlock
	},
	"RWMutex, read": func(t *testing.T, l *locktest.Locker) (context.Context, func(context.Context) error) {
		mu := l.RWMutex("a")
		require.NoError(t, mu.RLock(t.Context()))
		return mu.Context(t.Context()), mu.RUnlock
	},
	"Hold": func(t *testing.T, l *locktest.Locker) (context.Context, func(context.Context) error) {
		lease := l.Hold("a")
		return lease.Context(t.Context()), lease.Release
	},
}

func TestLoseEndsEveryHold(t *testing.T) {
	for name, take := range holders {
		t.Run(name, func(t *testing.T) {
			inBothTimes(t, func(t *testing.T) {
				locks := locktest.New(t)
				for range 3 {
					ctx, release := take(t, locks)
					locks.Lose("a")
					require.ErrorIs(t, context.Cause(ctx), rwlock.ErrLost)
					require.ErrorIs(t, release(t.Context()), rwlock.ErrLost)
					require.Empty(t, expect.NoError(locks.Inspect(t.Context(), "a")).In(t).Holders)
				}
			})
		})
	}
}

// A loss is a message, also to a process that has not waited: in a bubble, no renewal comes due before it.
func TestLoseTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		expect.NoError(locks.Lock(t.Context(), "a")).In(t)
		begun := time.Now()
		locks.Lose("a")
		require.Less(t, time.Since(begun), 100*time.Millisecond)
	})
}

// Options that change how long locks are waited for or kept do not get in the way.
func TestOptions(t *testing.T) {
	for name, opt := range map[string]rwlock.Option{
		"WithMaxWait":           rwlock.WithMaxWait(time.Nanosecond),
		"WithMinHold":           rwlock.WithMinHold(time.Hour),
		"WithMaxHold":           rwlock.WithMaxHold(time.Hour),
		"WithBackgroundRelease": rwlock.WithBackgroundRelease(),
		"WithoutRenewal":        rwlock.WithoutRenewal(),
		"WithTTL":               rwlock.WithTTL(24 * time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			inBothTimes(t, func(t *testing.T) {
				locks := locktest.New(t, opt)
				locks.Hold("b")
				_, err := locks.TryDo(t.Context(), "a", func(ctx context.Context) error {
					locks.Lose("a")
					return context.Cause(ctx)
				})
				require.ErrorIs(t, err, rwlock.ErrLost)
			})
		})
	}
}

// After a pause beyond the TTL the lock belongs to another process, and the lease is trusted until it is renewed.
func TestAdvanceIsAPause(t *testing.T) {
	inBothTimes(t, func(t *testing.T) {
		locks := locktest.New(t)
		lease := expect.NoError(locks.Lock(t.Context(), "a")).In(t)
		locks.Advance(5 * time.Second)
		_, err := locks.Another().TryLock(t.Context(), "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		locks.Advance(6 * time.Second)
		next := locks.Hold("a")
		require.Greater(t, next.Token(), lease.Token())
		require.NoError(t, lease.Err())
		require.ErrorIs(t, lease.Renew(t.Context()), rwlock.ErrLost)

		var guard fencing.Watermark
		nothing := func(context.Context) error { return nil }
		require.NoError(t, guard.Do(t.Context(), next.Fence(), nothing))
		require.ErrorIs(t, guard.Do(t.Context(), lease.Fence(), nothing), fencing.ErrStale)
	})
}

// The holder of the lock has died, as far as its waiters can tell.
func TestAdvanceLetsAWaiterIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		locks.Hold("a")
		go func() {
			time.Sleep(time.Millisecond)
			locks.Advance(time.Minute)
		}()
		begun := time.Now()
		require.NoError(t, locks.Do(t.Context(), "a", func(context.Context) error { return nil }))
		require.Less(t, time.Since(begun), 2*time.Second)

		lease := locks.Hold("a")
		time.Sleep(time.Minute)
		require.NoError(t, lease.Err())

		locks.Hold("b")
		time.Sleep(2 * time.Second) // the server's clock goes on
		require.LessOrEqual(t, expect.NoError(locks.Inspect(t.Context(), "b")).In(t).Holders[0].Remaining, 8*time.Second)
	})
}

// What other processes do is not counted, and not traced.
func TestOtherProcessesAreNotReported(t *testing.T) {
	acquired := make(chan string, 9)
	locks := locktest.New(t, rwlock.WithTrace(&rwlock.Trace{
		Acquired: func(_ context.Context, e rwlock.TraceEvent) { acquired <- e.Name },
	}))
	expect.NoError(locks.Another(rwlock.WithMeta("second")).Lock(t.Context(), "a")).In(t)
	locks.Hold("b")
	expect.NoError(locks.Lock(t.Context(), "c")).In(t)
	require.Equal(t, "c", <-acquired)
	require.EqualValues(t, 1, locks.Stats().Acquired)
	require.Equal(t, rwlock.FailedStats{Contended: 1}, locks.Stats().Failed)
	require.Equal(t, "second", expect.NoError(locks.Inspect(t.Context(), "a")).In(t).Holders[0].Meta)
}

// failing is a test that may fail without failing the test that runs it.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure returns how f ends its test.
func failure(t *testing.T, f func(tb testing.TB)) string {
	tb, over := &failing{TB: t}, make(chan struct{})
	go func() {
		defer close(over)
		f(tb)
	}()
	<-over
	return tb.text
}

func TestWhatCannotBeDoneEndsTheTest(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*locktest.Locker)
		want string
	}{
		"a free lock is lost":   {func(l *locktest.Locker) { l.Lose("a") }, `Lose("a"): no process holds the lock`},
		"a lock without name":   {func(l *locktest.Locker) { l.Lose("") }, `Lose(""): rwlock:`},
		"held twice":            {func(l *locktest.Locker) { l.Hold("a"); l.Hold("a") }, `Hold("a"): rwlock: write lock "a"`},
		"held without a name":   {func(l *locktest.Locker) { l.Hold("") }, `Hold(""): rwlock:`},
		"no time":               {func(l *locktest.Locker) { l.Advance(0) }, "Advance(0s): the time must be positive"},
		"time back":             {func(l *locktest.Locker) { l.Advance(-time.Second) }, "Advance(-1s): the time must be"},
		"another, wrong option": {func(l *locktest.Locker) { l.Another(rwlock.WithTTL(0)) }, "WithTTL"},
	} {
		t.Run(name, func(t *testing.T) {
			text := failure(t, func(tb testing.TB) { tt.do(locktest.New(tb)) })
			require.Contains(t, text, "locktest: ")
			require.Contains(t, text, tt.want)
		})
	}
	require.Contains(t, failure(t, func(tb testing.TB) { locktest.New(tb, rwlock.WithTTL(0)) }), "WithTTL")
}

func TestServersAreApart(t *testing.T) {
	one, two := locktest.New(t), locktest.New(t)
	one.Hold("a")
	two.Hold("a")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

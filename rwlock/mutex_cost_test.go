package rwlock_test

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// While the process reads, another reader costs no command and no memory.
func TestReadingBesideReadersCostsNothing(t *testing.T) {
	everywhereAlone(t, func(w *world) {
		p := w.process(rwlock.WithTTL(time.Hour))
		mu := p.RWMutex("n")
		p.hasWaited()
		require.NoError(w.t, mu.RLock(w.ctx))
		p.link.ResetCalls()
		for range 1000 {
			require.NoError(w.t, p.RWMutex("n").RLock(w.ctx))
			require.NoError(w.t, mu.TryRLock(w.ctx))
			require.NoError(w.t, mu.RUnlock(w.ctx))
			require.NoError(w.t, mu.RUnlock(w.ctx))
		}
		require.Empty(w.t, sent(p.link))
		if !raceDetector {
			require.Zero(w.t, testing.AllocsPerRun(1000, func() {
				if mu.RLock(w.ctx) != nil || mu.RUnlock(w.ctx) != nil {
					w.t.Fatal("not read")
				}
			}), "allocations")
		}
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.onlyTokensLeft()
	})
}

// hasWaited has the process listen to messages from now on.
func (p *process) hasWaited() {
	p.w.t.Helper()
	other := p.w.process()
	held := other.lock("waited for", rwlock.Write)
	waiting := p.queue("waited for", rwlock.Write)
	p.w.release(held)
	p.w.release(waiting.granted())
	require.NoError(p.w.t, other.Close())
	p.w.settle()
}

// What the process itself is in the way of costs no command either.
func TestALockHeldInTheProcessCostsNoCommand(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		var waiting []*locking
		w.settle()
		before := runtime.NumGoroutine()
		p.link.ResetCalls()
		for i := range 100 {
			lock := mu.Lock
			if i%2 == 1 {
				lock = mu.RLock
			}
			waiting = append(waiting, w.locking(w.ctx, lock))
			require.ErrorIs(w.t, mu.TryLock(w.ctx), rwlock.ErrNotAcquired)
			require.ErrorIs(w.t, mu.TryRLock(w.ctx), rwlock.ErrNotAcquired)
		}
		w.settle()
		require.Empty(w.t, sent(p.link))
		require.Equal(w.t, before+100, runtime.NumGoroutine(), "the callers' own")
		for i, l := range waiting {
			unlock := mu.Unlock
			if i > 0 && i%2 == 0 {
				unlock = mu.RUnlock
			}
			require.NoError(w.t, unlock(w.ctx))
			require.NoError(w.t, l.result())
		}
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.onlyTokensLeft()
	})
}

// An RWMutex that is not held costs less than 1 KiB, nothing that runs, and nothing once nobody refers to it.
func TestIdleRWMutexesCostNothing(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		const n = 10_000
		heap := func() uint64 {
			for range 3 { // the second and third also free what cleanups let go of
				runtime.GC()
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		use := func(mu *rwlock.RWMutex) {
			require.NoError(w.t, mu.Lock(w.ctx))
			require.NoError(w.t, mu.Unlock(w.ctx))
		}
		use(p.RWMutex("warm up"))
		w.settle()
		before, goroutines := heap(), runtime.NumGoroutine()
		all := make([]*rwlock.RWMutex, n)
		for i := range all {
			all[i] = p.RWMutex(strconv.Itoa(i))
			if i%100 == 0 {
				use(all[i])
			}
		}
		w.settle()
		p.link.ResetCalls()
		require.Less(w.t, int64(heap())-int64(before), int64(n*1024))
		require.Equal(w.t, goroutines, runtime.NumGoroutine())
		w.pass(time.Minute)
		require.Empty(w.t, sent(p.link))
		runtime.KeepAlive(all)
	})
}

// A locker keeps nothing of the names that it was asked for.
func TestForgottenRWMutexesAreFreed(t *testing.T) {
	locker, err := rwlock.New(testredis.Start(t).Client(t))
	require.NoError(t, err)
	defer locker.Close()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const n = 20_000
	before, tail := heap(), strings.Repeat("x", 500) // a long name, since a map keeps its own size
	for i := range n {
		mu := locker.RWMutex(strconv.Itoa(i) + tail)
		if i%1000 == 0 {
			require.NoError(t, mu.RLock(t.Context()))
			require.NoError(t, mu.RUnlock(t.Context()))
		}
	}
	require.Eventually(t, func() bool { return heap()-before < n*250 }, time.Minute, 10*time.Millisecond)
	runtime.KeepAlive(locker)
}

// One that is held is the same for everybody who asks for it, even if nobody remembers it.
func TestARWMutexThatIsHeldIsNotForgotten(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		for range 3 {
			require.NoError(w.t, p.RWMutex("n").Lock(w.ctx))
			token := p.RWMutex("n").Token()
			for range 3 {
				runtime.GC()
			}
			require.NotZero(w.t, token)
			require.Equal(w.t, token, p.RWMutex("n").Token())
			require.ErrorIs(w.t, p.RWMutex("n").TryRLock(w.ctx), rwlock.ErrNotAcquired)
			require.NoError(w.t, p.RWMutex("n").Unlock(w.ctx))
		}
		w.onlyTokensLeft()
	})
}

// Goroutines that share a lease share its terms, so RWMutexes of one name that are in use at a time have the same
// options.
func TestRWMutexesInUseHaveTheSameOptions(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process(rwlock.WithTTL(time.Second))
		mu := p.RWMutex("n", rwlock.WithMeta("a"))
		require.Same(w.t, mu, p.RWMutex("n", rwlock.WithTTL(time.Second), rwlock.WithMeta("a")))
		for _, c := range []struct {
			option      rwlock.LockOption
			name, value string
			rule        string
		}{
			{rwlock.WithTTL(2 * time.Second), "WithTTL", "2s", `must be 1s, as in the RWMutex "n"`},
			{rwlock.WithMaxWait(time.Second), "WithMaxWait", "1s", "must not be set, as in the RWMutex"},
			{rwlock.WithMaxHold(time.Second), "WithMaxHold", "1s", "must not be set, as in the RWMutex"},
			{rwlock.WithMeta("b"), "WithMeta", "b", "must be a"},
			{rwlock.WithoutRenewal(), "WithoutRenewal", "true", "must be false"},
		} {
			other := p.RWMutex("n", rwlock.WithMeta("a"), c.option)
			require.NoError(w.t, other.Lock(w.ctx), "no other is in use")
			require.NoError(w.t, other.Unlock(w.ctx))
			require.NoError(w.t, mu.RLock(w.ctx))
			for _, err := range []error{other.Lock(w.ctx), other.TryLock(w.ctx), other.RLock(w.ctx), other.TryRLock(w.ctx)} {
				refusedOption(w.t, err, c.name, c.value, c.rule)
			}
			require.ErrorIs(w.t, other.Unlock(w.ctx), rwlock.ErrNotHeld)
			require.Zero(w.t, other.Token())
			require.NoError(w.t, p.RWMutex("m", c.option).TryLock(w.ctx), "another name")
			require.NoError(w.t, p.RWMutex("m", c.option).Unlock(w.ctx))
			require.NoError(w.t, mu.RUnlock(w.ctx))
		}
	})
}

// One that is waited for is in use, and one whose waiters have all left is not.
func TestWaitersPutARWMutexInUse(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		held := q.lock("n", rwlock.Write)
		ctx, cancel := context.WithCancel(w.ctx)
		waiting := []*locking{w.locking(ctx, p.RWMutex("n").RLock), w.locking(ctx, p.RWMutex("n").Lock)}
		other := p.RWMutex("n", rwlock.WithTTL(time.Second))
		require.ErrorIs(w.t, other.TryLock(w.ctx), rwlock.ErrOption)
		cancel()
		for _, l := range waiting {
			require.ErrorIs(w.t, l.result(), context.Canceled)
		}
		require.ErrorIs(w.t, other.TryLock(w.ctx), rwlock.ErrNotAcquired)
		w.settle() // who has given up has left the queue
		w.release(held)
		require.NoError(w.t, other.TryLock(w.ctx))
		require.NoError(w.t, other.Unlock(w.ctx))
		w.onlyTokensLeft()
	})
}

package rwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Trace tells of a waiter whose Redis cannot be reached: at once, then at intervals that grow. Stats counts such
// waiters.
func TestUnreachableRedisIsTracedAndCounted(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var mu sync.Mutex
		var told []time.Time
		p := w.process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(e rwlock.TraceEvent, err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, time.Now())
			if err == nil || e.Hold == "" {
				w.t.Errorf("told of %+v without a cause", e)
			}
		}}))
		p.warmUp()
		require.Zero(w.t, p.Stats().Unreachable)
		p.die()
		begun := time.Now()
		ctx, cancel := context.WithCancel(w.ctx)
		waiters := []*pending{p.acquire(ctx, "a", rwlock.Write), p.acquire(ctx, "b", rwlock.Read)}
		w.pass(5 * time.Second)
		require.Equal(w.t, len(waiters), p.Stats().Unreachable)
		w.pass(time.Hour)
		mu.Lock()
		require.GreaterOrEqual(w.t, len(told), 2*len(waiters))
		require.Less(w.t, told[0].Sub(begun), time.Second)
		require.Less(w.t, len(told), 100*len(waiters))
		mu.Unlock()

		p.link.Restore()
		for _, a := range waiters {
			w.release(a.granted())
		}
		require.Zero(w.t, p.Stats().Unreachable)
		cancel()
	})
}

// A server that stays silent is told to Trace with the type that it has in every error of this package.
func TestSilentRedisIsTracedByItsType(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var mu sync.Mutex
		var causes []error
		p := w.process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(_ rwlock.TraceEvent, err error) {
			mu.Lock()
			defer mu.Unlock()
			causes = append(causes, err)
		}}))
		p.warmUp()
		p.link.Hold(testredis.Both)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		waiting := p.acquire(ctx, "n", rwlock.Write)
		w.pass(time.Minute)
		mu.Lock()
		require.NotEmpty(w.t, causes)
		require.ErrorAs(w.t, causes[0], new(*rwlock.NoReplyError)) // then its connection fails
		mu.Unlock()
		p.link.Restore()
		w.release(waiting.granted())
	})
}

// Whoever comes while a silent server is not tried again finds the same type.
func TestNotTriedAgainKeepsTheTypeOfItsCause(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		p.warmUp()
		p.link.Hold(testredis.Both)
		for range 2 {
			_, err := p.TryLock(w.ctx, "n")
			require.ErrorIs(w.t, err, rwlock.ErrNoQuorum)
			require.ErrorAs(w.t, err, new(*rwlock.NoReplyError))
		}
		p.link.Restore()
	})
}

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
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(e rwlock.TraceEvent, err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, time.Now())
			if err == nil || e.Hold == "" {
				w.Errorf("told of %+v without a cause", e)
			}
		}}))
		p.WarmUp()
		require.Zero(w, p.Stats().Unreachable)
		p.Die()
		begun := time.Now()
		ctx, cancel := context.WithCancel(w.Ctx)
		waiters := []*pending{p.Acquire(ctx, "a", rwlock.Write), p.Acquire(ctx, "b", rwlock.Read)}
		w.Pass(5 * time.Second)
		require.Equal(w, len(waiters), p.Stats().Unreachable)
		w.Pass(time.Hour)
		mu.Lock()
		require.GreaterOrEqual(w, len(told), 2*len(waiters))
		require.Less(w, told[0].Sub(begun), time.Second)
		require.Less(w, len(told), 100*len(waiters))
		mu.Unlock()

		p.Link.Restore()
		for _, a := range waiters {
			w.Release(a.Granted())
		}
		require.Zero(w, p.Stats().Unreachable)
		cancel()
	})
}

// A server that stays silent is told to Trace with the type that it has in every error of this package.
func TestSilentRedisIsTracedByItsType(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var mu sync.Mutex
		var causes []error
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(_ rwlock.TraceEvent, err error) {
			mu.Lock()
			defer mu.Unlock()
			causes = append(causes, err)
		}}))
		p.WarmUp()
		p.Link.Hold(testredis.Both)
		ctx, cancel := context.WithCancel(w.Ctx)
		defer cancel()
		waiting := p.Acquire(ctx, "n", rwlock.Write)
		w.Pass(time.Minute)
		mu.Lock()
		require.NotEmpty(w, causes)
		require.ErrorAs(w, causes[0], new(*rwlock.NoReplyError)) // then its connection fails
		mu.Unlock()
		p.Link.Restore()
		w.Release(waiting.Granted())
	})
}

// Whoever comes while a silent server is not tried again finds the same type.
func TestNotTriedAgainKeepsTheTypeOfItsCause(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		p.WarmUp()
		p.Link.Hold(testredis.Both)
		for range 2 {
			_, err := p.TryLock(w.Ctx, "n")
			require.ErrorIs(w, err, rwlock.ErrNoQuorum)
			require.ErrorAs(w, err, new(*rwlock.NoReplyError))
		}
		p.Link.Restore()
	})
}

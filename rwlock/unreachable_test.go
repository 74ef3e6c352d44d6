package rwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

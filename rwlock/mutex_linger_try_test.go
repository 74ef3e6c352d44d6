package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A single attempt is not refused by what its own process kept and gives back, at the end of the time or for an RWMutex
// with other options, though the release is still on its way.
func TestASingleAttemptWaitsForTheEndOfLingering(t *testing.T) {
	const linger, late = time.Second, 50 * time.Millisecond
	plain := func(p *process) func(context.Context) error { return p.RWMutex("n").TryLock }
	for name, c := range map[string]struct {
		passes time.Duration
		try    func(p *process) func(context.Context) error
	}{
		"at the end of the time": {linger, func(p *process) func(context.Context) error {
			return p.RWMutex("n", rwlock.WithLinger(linger)).TryLock
		}},
		"at the end of the time, with other options": {linger, plain},
		"with other options":                         {linger / 2, plain},
		"without an RWMutex, at the end of the time": {linger, func(p *process) func(context.Context) error {
			return func(ctx context.Context) error { _, err := p.TryLock(ctx, "n"); return err }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.Process()
				relock(w, p.RWMutex("n", rwlock.WithLinger(linger)))
				p.Link.DelayDir(testredis.ToServer, late)
				w.Pass(c.passes)
				require.NoError(w, c.try(p)(w.Ctx))
			})
		})
	}
}

// It waits no longer than its context, where the release is not answered.
func TestASingleAttemptWaitsNoLongerThanItsContext(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		relock(w, p.RWMutex("n", rwlock.WithLinger(time.Hour)))
		p.Link.Blackhole(testredis.Both)
		began := time.Now()
		ctx, cancel := context.WithTimeout(w.Ctx, time.Second)
		defer cancel()
		require.ErrorIs(w, p.RWMutex("n").TryLock(ctx), context.DeadlineExceeded)
		require.Equal(w, time.Second, time.Since(began))
		p.Link.Restore()
	})
}

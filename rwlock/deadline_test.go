package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// A lease that has ended has no deadline, whatever has ended it, and its contexts say the same.
func TestDeadlineOfAnEndedLeaseIsZero(t *testing.T) {
	for name, end := range map[string]func(w *world, p *process, c *testkit.WallClock, l *rwlock.Lease){
		"released": func(w *world, _ *process, _ *testkit.WallClock, l *rwlock.Lease) { w.Release(l) },
		"closed":   func(w *world, p *process, _ *testkit.WallClock, _ *rwlock.Lease) { require.NoError(w, p.Close()) },
		"max hold": func(w *world, _ *process, _ *testkit.WallClock, _ *rwlock.Lease) { w.Pass(time.Minute) },
		"lost": func(w *world, _ *process, _ *testkit.WallClock, l *rwlock.Lease) {
			w.FlushAll()
			require.ErrorIs(w, l.Renew(w.Ctx), rwlock.ErrLost)
		},
		"not noticed yet": func(w *world, _ *process, c *testkit.WallClock, _ *rwlock.Lease) { c.Step(w.TTL) },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				clock := testkit.NewWallClock(0)
				p := w.Process(clock.Option())
				lease := p.Take("n", rwlock.Write, rwlock.WithMaxHold(time.Minute))
				ctx := lease.Context(w.Ctx)
				requireDeadline(w, ctx, lease.Deadline())
				require.Positive(w, time.Until(lease.Deadline()))
				end(w, p, clock, lease)
				require.Zero(w, lease.Deadline())
				requireDeadline(w, ctx, time.Time{})
				require.Error(w, lease.Err())
			})
		})
	}
}

// The same of an RWMutex: of one who has unlocked while the process keeps the lock, and of one who has lost it.
func TestDeadlineOfAnEndedSectionIsZero(t *testing.T) {
	for name, end := range map[string]func(w *world, m *rwlock.RWMutex){
		"unlocked": func(w *world, m *rwlock.RWMutex) { require.NoError(w, m.Unlock(w.Ctx)) },
		"max hold": func(w *world, _ *rwlock.RWMutex) { w.Pass(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				m := w.Process().RWMutex("n", rwlock.WithLinger(time.Hour), rwlock.WithMaxHold(time.Minute))
				require.NoError(w, m.Lock(w.Ctx))
				ctx := m.Context(w.Ctx)
				deadline, _ := fencing.Deadline(ctx, "n")
				require.Positive(w, time.Until(deadline))
				end(w, m)
				requireDeadline(w, ctx, time.Time{})
				require.Error(w, ctx.Err())
			})
		})
	}
}

// A section whose limit is reached in this moment has no deadline, whether or not its timer has come to it: of what is
// due at one moment of fake time any comes first, so one of many rounds is enough.
func TestDeadlineOfASectionAtItsLimitIsZero(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const limit = time.Second
		m := w.Process().RWMutex("n", rwlock.WithMaxHold(limit))
		for range 100 {
			require.NoError(w, m.Lock(w.Ctx))
			ctx := m.Context(w.Ctx)
			time.Sleep(limit)
			requireDeadline(w, ctx, time.Time{})
			require.ErrorIs(w, m.Unlock(w.Ctx), rwlock.ErrLost)
		}
	})
}

func requireDeadline(w *world, ctx context.Context, want time.Time) {
	w.Helper()
	deadline, ok := fencing.Deadline(ctx, "n")
	require.True(w, ok)
	require.Equal(w, want, deadline)
}

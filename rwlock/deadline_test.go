package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// A lease that has ended has no deadline, whatever has ended it, and its contexts say the same.
func TestDeadlineOfAnEndedLeaseIsZero(t *testing.T) {
	for name, end := range map[string]func(w *world, p *process, c *wallClock, l *rwlock.Lease){
		"released": func(w *world, _ *process, _ *wallClock, l *rwlock.Lease) { w.release(l) },
		"closed":   func(w *world, p *process, _ *wallClock, _ *rwlock.Lease) { require.NoError(w.t, p.Close()) },
		"max hold": func(w *world, _ *process, _ *wallClock, _ *rwlock.Lease) { w.pass(time.Minute) },
		"lost": func(w *world, _ *process, _ *wallClock, l *rwlock.Lease) {
			w.flushAll()
			require.ErrorIs(w.t, l.Renew(w.ctx), rwlock.ErrLost)
		},
		"not noticed yet": func(w *world, _ *process, c *wallClock, _ *rwlock.Lease) { c.step(w.ttl) },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				clock := newWallClock(0)
				p := w.process(clock.option())
				lease := p.lock("n", rwlock.Write, rwlock.WithMaxHold(time.Minute))
				ctx := lease.Context(w.ctx)
				requireDeadline(w, ctx, lease.Deadline())
				require.Positive(w.t, time.Until(lease.Deadline()))
				end(w, p, clock, lease)
				require.Zero(w.t, lease.Deadline())
				requireDeadline(w, ctx, time.Time{})
				require.Error(w.t, lease.Err())
			})
		})
	}
}

// The same of an RWMutex: of one who has unlocked while the process keeps the lock, and of one who has lost it.
func TestDeadlineOfAnEndedSectionIsZero(t *testing.T) {
	for name, end := range map[string]func(w *world, m *rwlock.RWMutex){
		"unlocked": func(w *world, m *rwlock.RWMutex) { require.NoError(w.t, m.Unlock(w.ctx)) },
		"max hold": func(w *world, _ *rwlock.RWMutex) { w.pass(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				m := w.process().RWMutex("n", rwlock.WithLinger(time.Hour), rwlock.WithMaxHold(time.Minute))
				require.NoError(w.t, m.Lock(w.ctx))
				ctx := m.Context(w.ctx)
				deadline, _ := fencing.Deadline(ctx, "n")
				require.Positive(w.t, time.Until(deadline))
				end(w, m)
				requireDeadline(w, ctx, time.Time{})
				require.Error(w.t, ctx.Err())
			})
		})
	}
}

// A section whose limit is reached in this moment has no deadline, whether or not its timer has come to it: of what is
// due at one moment of fake time any comes first, so one of many rounds is enough.
func TestDeadlineOfASectionAtItsLimitIsZero(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const limit = time.Second
		m := w.process().RWMutex("n", rwlock.WithMaxHold(limit))
		for range 100 {
			require.NoError(w.t, m.Lock(w.ctx))
			ctx := m.Context(w.ctx)
			time.Sleep(limit)
			requireDeadline(w, ctx, time.Time{})
			require.ErrorIs(w.t, m.Unlock(w.ctx), rwlock.ErrLost)
		}
	})
}

func requireDeadline(w *world, ctx context.Context, want time.Time) {
	w.t.Helper()
	deadline, ok := fencing.Deadline(ctx, "n")
	require.True(w.t, ok)
	require.Equal(w.t, want, deadline)
}

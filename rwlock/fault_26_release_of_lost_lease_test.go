package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F26: whoever gives back what he has lost is told so. He has worked for some time without the lock.

// losses end a lease that was not released.
var losses = []struct {
	name   string
	lose   func(w *world, p *process, lease *rwlock.Lease)
	reason rwlock.Reason
	opts   []rwlock.LockOption
}{
	{"expired", func(w *world, _ *process, _ *rwlock.Lease) {
		w.pass(w.ttl)
	}, rwlock.Expired, []rwlock.LockOption{rwlock.WithoutRenewal()}},
	{"at its limit", func(w *world, _ *process, _ *rwlock.Lease) {
		w.pass(w.ttl)
	}, rwlock.MaxHold, []rwlock.LockOption{rwlock.WithMaxHold(time.Second)}},
	{"cut off", func(w *world, p *process, _ *rwlock.Lease) {
		p.link.Blackhole(testredis.Both)
		w.pass(w.ttl)
	}, rwlock.NoQuorum, nil},
	{"taken away, found by a renewal", func(w *world, _ *process, _ *rwlock.Lease) {
		w.flushAll()
		w.pass(w.ttl / 2)
	}, rwlock.Taken, nil},
	{"taken away, found by the release", func(w *world, _ *process, _ *rwlock.Lease) { w.flushAll() }, rwlock.Taken, nil},
	{"taken away and held by another", func(w *world, _ *process, _ *rwlock.Lease) {
		w.flushAll()
		w.process().lock("n", rwlock.Write)
	}, rwlock.Taken, nil},
}

func TestF26ReleaseOfALostLeaseSaysSo(t *testing.T) {
	for _, c := range losses {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				for _, mode := range bothModes {
					p := w.process()
					lease := p.lock("n", mode, c.opts...)
					token := lease.Token()
					c.lose(w, p, lease)
					before := lease.Err()
					var lost *rwlock.LostError
					require.ErrorAs(w.t, lease.Release(w.ctx), &lost)
					require.Equal(w.t, c.reason, lost.Reason)
					require.Equal(w.t, "n", lost.Name)
					require.Equal(w.t, token, lost.Token)
					if before != nil {
						require.ErrorIs(w.t, lease.Release(w.ctx), rwlock.ErrLost, "and again")
					}
					others := w.inspect("n").Holders
					w.pass(w.ttl)
					require.Equal(w.t, len(others), len(w.inspect("n").Holders), "another's hold is not touched")
					w.flushAll()
				}
			})
		})
	}
}

// The same through the other forms.
func TestF26UnlockAndDoSaySo(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.process()
		for _, mode := range bothModes {
			m := p.RWMutex("n")
			lock, unlock, do := m.Lock, m.Unlock, p.Do
			if mode == rwlock.Read {
				lock, unlock, do = m.RLock, m.RUnlock, p.RDo
			}
			require.NoError(w.t, lock(w.ctx))
			w.flushAll()
			require.ErrorIs(w.t, unlock(w.ctx), rwlock.ErrLost)
			require.ErrorIs(w.t, unlock(w.ctx), rwlock.ErrNotHeld)

			err := do(w.ctx, "n", func(context.Context) error { w.flushAll(); return nil })
			require.ErrorIs(w.t, err, rwlock.ErrLost, "the work succeeded, but not under the lock")
		}
		w.onlyTokensLeft()
	})
}

package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// freezeReleases has the server run no release of this process until thaw is called.
func (p *process) freezeReleases() (thaw func()) {
	thawed := make(chan struct{})
	p.link.OnCommand(func(cmd []string) {
		if running(scripts.Release)(cmd) {
			<-thawed
		}
	})
	return func() { close(thawed) }
}

// The server stands still after it has granted a conversion. The conversion is done when ctx ends, and what is left of
// the hold before is released once the server goes on.
func TestAConversionEndsWithItsContext(t *testing.T) {
	for _, c := range []struct {
		name string
		from rwlock.Mode
		run  func(*rwlock.Lease, context.Context) error
	}{
		{"Upgrade", rwlock.Read, (*rwlock.Lease).Upgrade},
		{"TryUpgrade", rwlock.Read, (*rwlock.Lease).TryUpgrade},
		{"Downgrade", rwlock.Write, (*rwlock.Lease).Downgrade},
	} {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.process()
				lease := p.lock("n", c.from)
				token, thaw := lease.Token(), p.freezeReleases()
				began := time.Now()
				require.NoError(w.t, c.run(lease, soonOver(w)))
				require.Equal(w.t, 50*time.Millisecond, time.Since(began))
				require.NotEqual(w.t, c.from, lease.Mode())
				require.Greater(w.t, lease.Token(), token)
				require.Equal(w.t, 1, p.Stats().Held)
				require.Len(w.t, w.inspect("n").Holders, 2, "the hold before stands yet")

				thaw()
				w.eventually("it is released", func() bool { return len(w.inspect("n").Holders) == 1 })
				w.requireLess(time.Since(began), time.Second, "in the background")
				require.NoError(w.t, lease.Err())
				w.release(lease)
				w.onlyTokensLeft()
			})
		})
	}
}

// The goroutines of the process do not wait for that server either: readers enter beside the one that downgrades.
func TestADowngradeOfAnRWMutexEndsWithItsContext(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		reader := w.locking(w.ctx, mu.RLock)
		thaw := p.freezeReleases()
		began := time.Now()
		require.NoError(w.t, mu.Downgrade(soonOver(w)))
		require.NoError(w.t, reader.result())
		require.Equal(w.t, 50*time.Millisecond, time.Since(began))
		thaw()
		require.NoError(w.t, mu.RUnlock(w.ctx))
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.eventually("only tokens are left", w.hasOnlyTokens)
	})
}

// That the end of a context was sooner than the answer says nothing of the server: other releases do not wait for it.
func TestAConversionThatEndsWithItsContextHoldsUpNoOtherRelease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		p.hasWaited()
		q.hasWaited()
		lingering := p.RWMutex("other", rwlock.WithLinger(time.Hour))
		relock(w, lingering)
		lease := p.lock("n", rwlock.Write)
		p.link.DelayNextReply(running(scripts.Release), 200*time.Millisecond)
		require.NoError(w.t, lease.Downgrade(soonOver(w)))
		began := time.Now()
		w.release(q.lock("other", rwlock.Write))
		require.Equal(w.t, began, time.Now(), "what lingered was released at once")
		w.release(lease)
		w.onlyTokensLeft()
	})
}

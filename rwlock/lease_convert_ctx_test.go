package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// freezeReleases has the server run no release of this process until thaw is called.
func freezeReleases(p *process) (thaw func()) {
	thawed := make(chan struct{})
	p.Link.OnCommand(func(cmd []string) {
		if testkit.Running(scripts.Release)(cmd) {
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
				p := w.Process()
				lease := p.Take("n", c.from)
				token, thaw := lease.Token(), freezeReleases(p)
				began := time.Now()
				require.NoError(w, c.run(lease, soonOver(w)))
				require.Equal(w, 50*time.Millisecond, time.Since(began))
				require.NotEqual(w, c.from, lease.Mode())
				require.Greater(w, lease.Token(), token)
				require.Equal(w, 1, p.Stats().Held)
				require.Len(w, w.Inspect("n").Holders, 2, "the hold before stands yet")

				thaw()
				w.Eventually("it is released", func() bool { return len(w.Inspect("n").Holders) == 1 })
				w.RequireLess(time.Since(began), time.Second, "in the background")
				require.NoError(w, lease.Err())
				w.Release(lease)
				w.OnlyTokensLeft()
			})
		})
	}
}

// The goroutines of the process do not wait for that server either: readers enter beside the one that downgrades.
func TestADowngradeOfAnRWMutexEndsWithItsContext(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		mu := p.RWMutex("n")
		require.NoError(w, mu.Lock(w.Ctx))
		reader := w.Call(w.Ctx, mu.RLock)
		thaw := freezeReleases(p)
		began := time.Now()
		require.NoError(w, mu.Downgrade(soonOver(w)))
		require.NoError(w, reader.Result())
		require.Equal(w, 50*time.Millisecond, time.Since(began))
		thaw()
		require.NoError(w, mu.RUnlock(w.Ctx))
		require.NoError(w, mu.RUnlock(w.Ctx))
		w.Eventually("only tokens are left", w.HasOnlyTokens)
	})
}

// That the end of a context was sooner than the answer says nothing of the server: other releases do not wait for it.
func TestAConversionThatEndsWithItsContextHoldsUpNoOtherRelease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		hasWaited(p)
		hasWaited(q)
		lingering := p.RWMutex("other", rwlock.WithLinger(time.Hour))
		relock(w, lingering)
		lease := p.Take("n", rwlock.Write)
		p.Link.DelayNextReply(testkit.Running(scripts.Release), 200*time.Millisecond)
		require.NoError(w, lease.Downgrade(soonOver(w)))
		began := time.Now()
		w.Release(q.Take("other", rwlock.Write))
		require.Equal(w, began, time.Now(), "what lingered was released at once")
		w.Release(lease)
		w.OnlyTokensLeft()
	})
}

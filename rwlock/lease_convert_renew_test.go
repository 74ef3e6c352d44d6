package rwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// heldBatches is a client whose batches, which renewals go in, leave only when they may.
type heldBatches struct {
	rueidis.Client
	may chan struct{}
}

func (c *heldBatches) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	<-c.may
	return c.Client.DoMulti(ctx, commands...)
}

// holdingBatches starts a locker whose renewals wait until they are let go.
func holdingBatches(w *world) (p *process, letGo func()) {
	w.Helper()
	link := w.NewLink()
	client := &heldBatches{link.Client(w.T), make(chan struct{})}
	letGo = sync.OnceFunc(func() { close(client.may) })
	p = w.ProcessWith(link, client)
	w.Cleanup(letGo) // before the locker is closed
	return p, letGo
}

// A renewal that is under way while its lease is converted renews what the lease has become. Its own answer is of no
// use to anybody then, and the lease does not end, so it must not wait for either.
func TestARenewalBesideAConversion(t *testing.T) {
	for mode, convert := range map[rwlock.Mode]func(*rwlock.Lease, context.Context) error{
		rwlock.Read: (*rwlock.Lease).Upgrade, rwlock.Write: (*rwlock.Lease).Downgrade,
	} {
		inFakeTime(t, func(w *world) {
			p, letGo := holdingBatches(w)
			lease := p.Take("n", mode, rwlock.WithoutRenewal())
			renewal := w.Call(w.Ctx, lease.Renew)
			require.NoError(w, convert(lease, w.Ctx))
			w.Pass(900 * time.Millisecond) // less than the node timeout
			require.True(w, renewal.IsWaiting())
			letGo()
			require.NoError(w, renewal.Result())
			require.Greater(w, time.Until(lease.Deadline()), w.TTL*19/20, "the TTL from now on")
			w.Release(lease)
			w.OnlyTokensLeft()
		})
	}
}

// A renewal that is under way ends with the hold that the lease has become.
func TestARenewalBesideAConversionAndARelease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, _ := holdingBatches(w)
		lease := p.Take("n", rwlock.Read)
		renewal := w.Call(w.Ctx, lease.Renew)
		require.NoError(w, lease.Upgrade(w.Ctx))
		w.Release(lease)
		require.ErrorIs(w, renewal.Result(), rwlock.ErrReleased)
	})
}

// A reader is about to join others, and renews their lease for that, when one of them upgrades. It comes in after the
// downgrade.
func TestAReaderThatJoinsBesideAConversion(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, letGo := holdingBatches(w)
		mu := p.RWMutex("n", rwlock.WithoutRenewal())
		require.NoError(w, mu.RLock(w.Ctx))
		reader := w.Call(w.Ctx, mu.RLock)
		require.NoError(w, mu.Upgrade(w.Ctx))
		letGo()
		require.True(w, reader.IsWaiting())
		require.NoError(w, mu.Downgrade(w.Ctx))
		require.NoError(w, reader.Result())
		require.NoError(w, mu.RUnlock(w.Ctx))
		require.NoError(w, mu.RUnlock(w.Ctx))
		w.OnlyTokensLeft()
	})
}

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
	w.t.Helper()
	link := w.newLink()
	client := &heldBatches{link.Client(w.t), make(chan struct{})}
	letGo = sync.OnceFunc(func() { close(client.may) })
	locker, err := rwlock.New(client, rwlock.WithTTL(w.ttl))
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		letGo()
		_ = locker.Close()
	})
	return &process{Locker: locker, link: link, client: client, w: w}, letGo
}

// A renewal that is under way while its lease is converted renews what the lease has become. Its own answer is of no
// use to anybody then, and the lease does not end, so it must not wait for either.
func TestARenewalBesideAConversion(t *testing.T) {
	for mode, convert := range map[rwlock.Mode]func(*rwlock.Lease, context.Context) error{
		rwlock.Read: (*rwlock.Lease).Upgrade, rwlock.Write: (*rwlock.Lease).Downgrade,
	} {
		inFakeTime(t, func(w *world) {
			p, letGo := holdingBatches(w)
			lease := p.lock("n", mode, rwlock.WithoutRenewal())
			renewal := w.locking(w.ctx, lease.Renew)
			require.NoError(w.t, convert(lease, w.ctx))
			w.pass(900 * time.Millisecond) // less than the node timeout
			require.True(w.t, renewal.isWaiting())
			letGo()
			require.NoError(w.t, renewal.result())
			require.Greater(w.t, time.Until(lease.Deadline()), w.ttl*19/20, "the TTL from now on")
			w.release(lease)
			w.onlyTokensLeft()
		})
	}
}

// A renewal that is under way ends with the hold that the lease has become.
func TestARenewalBesideAConversionAndARelease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, _ := holdingBatches(w)
		lease := p.lock("n", rwlock.Read)
		renewal := w.locking(w.ctx, lease.Renew)
		require.NoError(w.t, lease.Upgrade(w.ctx))
		w.release(lease)
		require.ErrorIs(w.t, renewal.result(), rwlock.ErrReleased)
	})
}

// A reader is about to join others, and renews their lease for that, when one of them upgrades. It comes in after the
// downgrade.
func TestAReaderThatJoinsBesideAConversion(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, letGo := holdingBatches(w)
		mu := p.RWMutex("n", rwlock.WithoutRenewal())
		require.NoError(w.t, mu.RLock(w.ctx))
		reader := w.locking(w.ctx, mu.RLock)
		require.NoError(w.t, mu.Upgrade(w.ctx))
		letGo()
		require.True(w.t, reader.isWaiting())
		require.NoError(w.t, mu.Downgrade(w.ctx))
		require.NoError(w.t, reader.result())
		require.NoError(w.t, mu.RUnlock(w.ctx))
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.onlyTokensLeft()
	})
}

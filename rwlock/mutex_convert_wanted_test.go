package rwlock_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// lateRenewals is a client to which, once it is late, the answers to renewals come only when they may.
type lateRenewals struct {
	rueidis.Client
	late atomic.Bool
	may  chan struct{}
}

func (c *lateRenewals) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	renews := slices.ContainsFunc(commands, func(cmd rueidis.Completed) bool {
		return running(scripts.Renew)(cmd.Commands())
	})
	results := c.Client.DoMulti(ctx, commands...)
	if renews && c.late.Load() {
		<-c.may
	}
	return results
}

// A writer elsewhere comes after the server has answered a renewal, and before the upgrade is given up that was granted
// meanwhile. The answer, which is yet on its way then, says that nobody waits; the lease asks once more.
func TestWhoWaitsBehindAnUpgradeIsAskedForAfterTheRenewalUnderWay(t *testing.T) {
	inFakeTime(t, func(w *world) {
		link := w.newLink()
		client := &lateRenewals{Client: link.Client(t), may: make(chan struct{})}
		locker, err := rwlock.New(client, rwlock.WithTTL(w.ttl))
		require.NoError(w.t, err)
		letGo := sync.OnceFunc(func() { close(client.may) })
		defer func() {
			letGo()
			_ = locker.Close()
		}()
		p, q := &process{Locker: locker, link: link, client: client, w: w}, w.process()
		p.hasWaited()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.RLock(w.ctx))
		require.NoError(w.t, mu.RLock(w.ctx))
		other := q.lock("n", rwlock.Read)
		ctx, cancel := context.WithCancel(w.ctx)
		upgrade := w.locking(ctx, mu.Upgrade)
		w.release(other)
		w.settle()
		require.Len(w.t, w.inspect("n").Holders, 2, "granted, and waiting for the other reader of the process")

		w.pass(w.ttl / 5) // the write hold, which was handed over, is confirmed
		client.late.Store(true)
		w.pass(w.ttl/3 - w.ttl/5)
		writer := q.queue("n", rwlock.Write)
		p.link.DropPushes(func([]string) bool { return true }) // as if it had come before the news were forgotten
		cancel()
		require.ErrorIs(w.t, upgrade.result(), context.Canceled)
		w.settle()
		letGo()
		hears(w, mu)
		p.link.DropPushes(nil)
		require.NoError(w.t, mu.RUnlock(w.ctx))
		require.NoError(w.t, mu.RUnlock(w.ctx))
		w.release(writer.granted())
		w.onlyTokensLeft()
	})
}

package rwlock_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
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
		return testkit.Running(scripts.Renew)(cmd.Commands())
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
		link := w.NewLink()
		client := &lateRenewals{Client: link.Client(t), may: make(chan struct{})}
		p, q := w.ProcessWith(link, client), w.Process()
		letGo := sync.OnceFunc(func() { close(client.may) })
		w.Cleanup(letGo) // before the locker is closed
		hasWaited(p)
		mu := p.RWMutex("n")
		require.NoError(w, mu.RLock(w.Ctx))
		require.NoError(w, mu.RLock(w.Ctx))
		other := q.Take("n", rwlock.Read)
		ctx, cancel := context.WithCancel(w.Ctx)
		upgrade := w.Call(ctx, mu.Upgrade)
		w.Release(other)
		w.Settle()
		require.Len(w, w.Inspect("n").Holders, 2, "granted, and waiting for the other reader of the process")

		w.Pass(w.TTL / 5) // the write hold, which was handed over, is confirmed
		client.late.Store(true)
		w.Pass(w.TTL/3 - w.TTL/5)
		writer := q.Queue("n", rwlock.Write)
		p.Link.DropPushes(func([]string) bool { return true }) // as if it had come before the news were forgotten
		cancel()
		require.ErrorIs(w, upgrade.Result(), context.Canceled)
		w.Settle()
		letGo()
		hears(w, mu)
		p.Link.DropPushes(nil)
		require.NoError(w, mu.RUnlock(w.Ctx))
		require.NoError(w, mu.RUnlock(w.Ctx))
		w.Release(writer.Granted())
		w.OnlyTokensLeft()
	})
}

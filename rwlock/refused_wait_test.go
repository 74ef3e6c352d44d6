package rwlock_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// refusing makes a server refuse scripts while the switch is on, and counts what it refuses.
func refusing(mini *testredis.Mini, on *atomic.Bool) (refused *atomic.Int64) {
	refused = new(atomic.Int64)
	mini.Miniredis().Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if !strings.HasPrefix(cmd, "EVAL") || !on.Load() {
			return false
		}
		refused.Add(1)
		c.WriteError("LOADING Redis is loading the dataset in memory")
		return true
	})
	return refused
}

// A server that cannot serve now queues nobody, so nobody is told when it can. Whoever waits gets in soon after that,
// however long it took; and of a crowd that waits for one lock a single one asks.
func TestWaitersOfAServerThatRefuses(t *testing.T) {
	for name, queued := range map[string]bool{"who asks": false, "who is queued": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const crowd, outage, soon = 100, 10500 * time.Millisecond, 50 * time.Millisecond
				mini := testredis.NewMini(t)
				var on atomic.Bool
				refused := refusing(mini, &on)
				locker := testkit.New(t, mini.Client(t), rwlock.WithTTL(time.Minute))
				holder, err := rwlock.New(mini.Client(t), rwlock.WithTTL(time.Second))
				require.NoError(t, err)
				held, err := holder.Lock(t.Context(), "n", rwlock.WithoutRenewal())
				require.NoError(t, err)

				on.Store(!queued)
				var all sync.WaitGroup
				var first atomic.Int64
				began := time.Now()
				for range crowd {
					all.Go(func() {
						lease, err := locker.Lock(t.Context(), "n")
						require.NoError(t, err)
						first.CompareAndSwap(0, int64(time.Since(began)))
						require.NoError(t, lease.Release(t.Context()))
					})
				}
				synctest.Wait()
				on.Store(true)
				<-held.Done()
				require.NoError(t, holder.Close())
				time.Sleep(outage - time.Since(began))
				require.Less(t, refused.Load(), int64(3000), "of the crowd")
				on.Store(false)
				all.Wait()
				require.Less(t, time.Duration(first.Load())-outage, soon)
			})
		})
	}
}

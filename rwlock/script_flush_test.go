package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A server that has flushed its scripts names itself otherwise in the messages of hand-offs. They are soon believed
// again: whoever is handed the lock does not have to ask.
func TestHandOffsAfterAScriptFlush(t *testing.T) {
	t.Parallel() // a subscription has to be a second old
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	w := testkit.OnGroup(t, cluster)
	w.TTL = 10 * time.Second
	link := testredis.NewLink(t, cluster.Option())
	waiter, err := rwlock.New(link.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, waiter.Close()) })
	p := w.Process()
	believed := func() bool {
		held := p.Take("n", rwlock.Write)
		var next *rwlock.Lease
		granted := make(chan error, 1)
		go func() {
			var err error
			next, err = waiter.Lock(t.Context(), "n")
			granted <- err
		}()
		require.Eventually(t, func() bool { return waiter.Stats().Waiting == 1 }, testkit.Patience, time.Millisecond)
		before := link.Calls("EVALSHA")
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-granted)
		asked := link.Calls("EVALSHA") > before
		require.NoError(t, next.Release(t.Context()))
		return !asked
	}
	w.Eventually("a hand-off is believed", believed)
	_, err = cluster.Owner(cluster.Slot("fencelock:{n}")).Command("SCRIPT", "FLUSH")
	require.NoError(t, err)
	w.Eventually("a hand-off is believed again", believed)
}

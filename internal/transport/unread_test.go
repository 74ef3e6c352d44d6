package transport_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// repeatable is call with a receiver whose call may run again.
func (o *outcomes) repeatable(id int) transport.Call {
	c := o.call(id, true)
	to := c.To
	c.To = transport.RepeaterFunc(func(r rueidis.RedisResult, sent clock.Instant) { to.Receive(r, sent) })
	return c
}

// inUnread runs a test with one of several masters whose marker was read, to which messages take a millisecond.
func inUnread(t *testing.T, test func(b *bed, client *tuned, done *outcomes, unread *atomic.Int32)) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		client, unread := dial(t, link.Option()), new(atomic.Int32)
		b := newBed(t, client, several, func(c *transport.Config) { c.OnUnread = func() { unread.Add(1) } })
		b.mustDo()
		b.SetIdentity("set:run", b.Dials())
		link.Delay(time.Millisecond)
		test(b, client, new(outcomes), unread)
	})
}

// A call during which the connection was replaced is sent again, once the marker was read.
func TestCallIsRepeatedOnceTheMarkerWasRead(t *testing.T) {
	inUnread(t, func(b *bed, client *tuned, done *outcomes, unread *atomic.Int32) {
		b.Post(done.repeatable(0))
		synctest.Wait()
		client.dials.Add(1)
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, done.take())
		require.Positive(t, unread.Load())
		b.SetIdentity("set:run", b.Dials())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		all := done.take()
		require.Len(t, all, 1)
		require.NoError(t, all[0].err)
		require.False(t, b.Failing())
	})
}

// It is sent again for as long as SlowCallAfter, and then its answer is the last one.
func TestConnectionThatIsReplacedAgainAndAgain(t *testing.T) {
	inUnread(t, func(b *bed, client *tuned, done *outcomes, _ *atomic.Int32) {
		b.Post(done.repeatable(0))
		begun := time.Now()
		var all []outcome
		for ; len(all) == 0; all = done.take() {
			synctest.Wait()
			client.dials.Add(1) // while the call is on its way
			time.Sleep(3 * time.Millisecond)
			b.SetIdentity("set:run", b.Dials())
			require.Less(t, time.Since(begun), 2*time.Second)
		}
		require.True(t, transport.StaleMarker(all[0].err), "%v", all[0].err)
		require.GreaterOrEqual(t, time.Since(begun), time.Second)
	})
}

// No call waits for a marker that is not read for longer than SlowCallAfter, and for each connection they wait once.
func TestCallsWaitForTheMarkerOnce(t *testing.T) {
	inUnread(t, func(b *bed, client *tuned, done *outcomes, unread *atomic.Int32) {
		client.dials.Add(1)
		begun := time.Now()
		b.Post(done.call(0, true))
		time.Sleep(time.Second - time.Millisecond)
		require.Empty(t, done.take())
		time.Sleep(4 * time.Millisecond)
		require.Len(t, done.take(), 1)
		before := unread.Load()
		b.Post(done.call(1, true))
		time.Sleep(3 * time.Millisecond)
		require.Len(t, done.take(), 1, "after %v", time.Since(begun))
		require.Equal(t, before, unread.Load())
	})
}

package transport_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// leaving returns a client as rwlock.Dial makes it.
func leaving(t *testing.T, link *testredis.Link) rueidis.Client { return leavingWith(t, link.Option()) }

func leavingWith(t *testing.T, option rueidis.ClientOption) rueidis.Client {
	client := expect.NoError(transport.Dial(transport.Tuned(option))).In(t)
	t.Cleanup(client.Close)
	return client
}

// leavingRESP2 is leaving with RESP2: the client then has a second connection for each that gets messages.
func leavingRESP2(t *testing.T, link *testredis.Link) rueidis.Client {
	option := link.Option()
	option.AlwaysRESP2 = true
	return leavingWith(t, option)
}

// The address may lead to another server by then. A replica that stays one is dialled with a backoff.
func TestAServerThatGrantsNothingIsLeft(t *testing.T) {
	for _, refusal := range []string{
		"READONLY You can't write against a read only replica.", "LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	} {
		var listens atomic.Int64
		inBedOf(t, leaving, func(t *testing.T, b *bed) {
			b.mustDo()
			b.Listen("")
			synctest.Wait()
			require.EqualValues(t, 1, listens.Load())
			before := b.Dials()
			b.link.Deny(func(cmd []string) string {
				if testredis.Named("EVAL", "EVALSHA")(cmd) {
					return refusal
				}
				return ""
			})
			err := b.do(context.Background())
			require.ErrorContains(t, err, refusal)
			require.False(t, b.Permanent(err))
			time.Sleep(time.Second)
			require.Greater(t, b.Dials(), before, "a connection for messages, if no call needs one")

			for range 1000 { // for a minute
				_ = b.do(context.Background())
				time.Sleep(60 * time.Millisecond)
			}
			require.Less(t, b.Dials(), before+400, "two or three connections each time, more often than once a second at first")
			require.Greater(t, b.Dials(), before+60)

			b.link.Deny(nil)
			time.Sleep(2 * time.Second)
			last := b.Dials()
			b.mustDo()
			time.Sleep(time.Minute)
			require.LessOrEqual(t, b.Dials(), last+2)
		}, func(cfg *transport.Config) {
			cfg.OnListen = func(*transport.Master, *transport.Node) { listens.Add(1) }
		})
	}
}

// Other refusals say nothing about where the address leads, and other clients cannot be told to connect again.
func TestAServerThatIsNotLeft(t *testing.T) {
	inBedOf(t, leaving, func(t *testing.T, b *bed) {
		b.mustDo()
		before := b.Dials()
		for _, refusal := range []string{"OOM command not allowed", "BUSY Redis is busy", "NOPERM this user", "MOVED 1 a:1"} {
			b.mini.Miniredis().SetError(refusal)
			require.ErrorContains(t, b.do(context.Background()), refusal)
			time.Sleep(time.Second)
		}
		require.Equal(t, before, b.Dials())
	})
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		conns := b.link.Conns()
		b.mini.Demote()
		err := b.do(context.Background())
		require.ErrorContains(t, err, "READONLY")
		require.True(t, b.Permanent(err))
		require.Equal(t, conns, b.link.Conns())
	})
}

// Another connection of the client may lead to another server, which forwards messages that its own scripts have passed
// over. Until the listener has connected again too, no message tells anything of the clock.
func TestAMessageOfAnEarlierConnectionTellsNothingOfTheClock(t *testing.T) {
	inBedOf(t, leaving, func(t *testing.T, b *bed) {
		b.mustDo()
		b.Listen("")
		<-b.listens
		b.mustDo()
		_, known := b.MaxServerTime(b.now())
		require.True(t, known)

		other, putBack := b.own.Dedicate()
		defer putBack()
		require.NoError(t, other.Do(context.Background(), other.B().Ping().Build()).Error())
		b.link.Refuse()
		synctest.Wait()
		b.mustDo()
		_, known = b.MaxServerTime(b.now())
		require.False(t, known)

		b.link.Restore()
		<-b.listens
		b.mustDo()
		_, known = b.MaxServerTime(b.now())
		require.True(t, known)
	})
}

// Each locker has a connection for messages. A locker that replaced its own because another one has dialled would make
// that one do the same.
func TestLockersOfOneClientLeaveEachOthersConnections(t *testing.T) {
	for _, c := range []struct {
		client func(*testing.T, *testredis.Link) rueidis.Client
		dials  int // one for calls, and those for the messages of each
	}{{leaving, 3}, {leavingRESP2, 5}} {
		inBedOf(t, c.client, func(t *testing.T, b *bed) {
			b.mustDo()
			other := newBed(t, b.own)
			b.Listen("")
			other.Listen("")
			time.Sleep(time.Minute)
			require.EqualValues(t, c.dials, b.Dials())
		})
	}
}

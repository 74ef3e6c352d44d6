package transport_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

func TestMessagesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		b := newBed(t, mini.Client(t))
		b.Listen("")
		b.Listen("") // once is enough
		<-b.listens
		<-b.Listened()
		synctest.Wait()
		require.Equal(t, 1, mini.Calls("SUBSCRIBE"))
		mini.Miniredis().Publish("channel", "first")
		mini.Miniredis().Publish("another", "not for us")
		mini.Miniredis().Publish("channel", "second")
		require.Equal(t, "first", <-b.heard)
		require.Equal(t, "second", <-b.heard)
		synctest.Wait()
		require.Empty(t, b.heard)
	})
}

func TestALostSubscriptionIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		link := mini.NewLink()
		option := link.Option()
		option.BlockingPoolSize = 1 // the lost one was given back
		b := newBed(t, dial(t, option))
		b.Listen("")
		<-b.listens
		for range 3 {
			begun := time.Now()
			link.Cut()
			<-b.listens
			require.LessOrEqual(t, time.Since(begun), transport.BackoffMin, "a subscription that stood begins anew")
		}
		mini.Miniredis().Publish("channel", "after it")
		require.Equal(t, "after it", <-b.heard)
	})
}

func TestASubscriptionIsTriedWithABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		client := dial(t, link.Option())
		b := newBed(t, client)
		link.Refuse()
		link.Cut()
		before := client.Dials()
		b.Listen("")
		<-b.Listened()
		time.Sleep(time.Minute)
		require.Less(t, client.Dials()-before, uint64(2*60+20), "half a second to a second apart in the end")
		require.Empty(t, b.listens)
		require.Empty(t, b.down, "the server is down: that is told otherwise")
		link.Restore()
		<-b.listens
	})
}

// A server, or what stands before it, that answers calls but takes no more connections is told of once.
func TestAServerThatTakesNoConnectionForMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, dial(t, link.Option()))
		b.mustDo()
		link.Refuse()
		b.Listen("")
		for range 10 {
			time.Sleep(time.Second)
			b.mustDo()
		}
		require.ErrorIs(t, <-b.down, syscall.ECONNREFUSED)
		require.Empty(t, b.down)
		require.True(t, b.SubscriptionDown(""))
		require.Equal(t, wire.Uncounted("channel"), b.Route(""))
		link.Restore()
		<-b.listens
		require.False(t, b.SubscriptionDown(""))
		require.Equal(t, wire.Published("channel"), b.Route(""))
	})
}

func TestAServerThatRefusesMessagesIsToldOf(t *testing.T) {
	server := testredis.Start(t)
	_, err := server.Command("ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "resetchannels")
	require.NoError(t, err)
	option := server.Option()
	option.Username, option.Password = "mute", "secret"
	client := dial(t, option)
	b := newBed(t, client)
	b.Listen("")
	err = <-b.down
	require.True(t, b.Permanent(err))
	require.ErrorContains(t, err, "channel")
	require.Empty(t, b.listens)

	dials := client.Dials()
	_, err = server.Command("ACL", "SETUSER", "mute", "allchannels")
	require.NoError(t, err)
	<-b.listens
	require.Equal(t, dials, client.Dials(), "a new connection would look like another server")
}

// clientsGoodbye is how long a client waits for the answers to come when one of its connections is closed.
const clientsGoodbye = time.Second

// unconfirmed is a master that has got a subscription which it does not confirm, over a patient client.
func unconfirmed(t *testing.T) *bed {
	link := testredis.NewMini(t).NewLink()
	option := link.Option()
	option.ConnWriteTimeout = time.Hour
	b := newBed(t, dial(t, option))
	muted := link.MuteNextReply(testredis.Named("SUBSCRIBE"))
	b.Listen("")
	<-muted
	return b
}

func TestAServerThatDoesNotConfirmASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := unconfirmed(t)
		begun := time.Now()
		<-b.down
		require.GreaterOrEqual(t, time.Since(begun), patience)
		require.LessOrEqual(t, time.Since(begun), patience+clientsGoodbye)
		<-b.listens
	})
}

func TestTheEndOfAnUnconfirmedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := unconfirmed(t)
		begun := time.Now()
		b.stop()
		require.LessOrEqual(t, time.Since(begun), clientsGoodbye)
		require.Empty(t, b.down, "the end is no failure")
	})
}

func TestTheEndOfASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, testredis.NewMini(t).Client(t))
		b.Listen("")
		<-b.listens
		begun := time.Now()
		b.stop()
		require.Zero(t, time.Since(begun))
		require.Empty(t, b.down, "the end is no failure")
	})
}

func TestAPoolOfOneConnectionThatOthersHaveDoesNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		option := testredis.NewMini(t).Option()
		option.BlockingPoolSize = 1
		client := dial(t, option)
		taken, giveBack := client.Dedicate()
		require.NoError(t, taken.Do(context.Background(), taken.B().Ping().Build()).Error())
		b := newBed(t, client)
		b.Listen("")
		time.Sleep(time.Minute)
		begun := time.Now()
		b.stop()
		require.LessOrEqual(t, time.Since(begun), time.Second)
		giveBack()
		synctest.Wait()
		again, giveBack := client.Dedicate() // the listener has not kept it
		require.NoError(t, again.Do(context.Background(), again.B().Ping().Build()).Error())
		giveBack()
	})
}

func TestAListenerThatStartsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		b := newBed(t, mini.Client(t))
		b.closed.Store(true)
		b.Listen("")
		synctest.Wait()
		require.Zero(t, mini.Calls("SUBSCRIBE"))
	})
}

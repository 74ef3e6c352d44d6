package transport_test

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

func TestMessagesArrive(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.Listen("")
		b.Listen("") // once is enough
		<-b.listens
		<-b.Listened()
		synctest.Wait()
		require.Equal(t, 1, b.mini.Calls("SUBSCRIBE"))
		b.mini.Miniredis().Publish("channel", "first")
		b.mini.Miniredis().Publish("another", "not for us")
		b.mini.Miniredis().Publish("channel", "second")
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
	inTunedBed(t, func(t *testing.T, b *bed) {
		b.link.Refuse()
		b.link.Cut()
		before := b.Dials()
		b.Listen("")
		<-b.Listened()
		time.Sleep(time.Minute)
		require.Less(t, b.Dials()-before, uint64(2*60+20), "half a second to a second apart in the end")
		require.Empty(t, b.listens)
		require.Empty(t, b.down, "the server is down: that is told otherwise")
		b.link.Restore()
		<-b.listens
	})
}

// A server, or what stands before it, that answers calls but takes no more connections is told of once.
func TestAServerThatTakesNoConnectionForMessages(t *testing.T) {
	inTunedBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.link.Refuse()
		b.Listen("")
		for range 10 {
			time.Sleep(time.Second)
			b.mustDo()
		}
		require.ErrorIs(t, <-b.down, syscall.ECONNREFUSED)
		require.Empty(t, b.down)
		require.True(t, b.SubscriptionDown(""))
		require.Equal(t, wire.Uncounted("channel"), b.Route(""))
		b.link.Restore()
		<-b.listens
		require.False(t, b.SubscriptionDown(""))
		require.Equal(t, wire.Published("channel"), b.Route(""))
	})
}

func TestAServerThatRefusesMessagesIsToldOf(t *testing.T) {
	server := testredis.Start(t)
	expect.NoError(server.Command("ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "resetchannels")).In(t)
	option := server.Option()
	option.Username, option.Password = "mute", "secret"
	client := dial(t, option)
	b := newBed(t, client)
	b.Listen("")
	err := <-b.down
	require.True(t, b.Permanent(err))
	require.ErrorContains(t, err, "channel")
	require.Empty(t, b.listens)

	dials := client.Dials()
	expect.NoError(server.Command("ACL", "SETUSER", "mute", "allchannels")).In(t)
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
		taken, putBack := client.Dedicate()
		require.NoError(t, taken.Do(context.Background(), taken.B().Ping().Build()).Error())
		b := newBed(t, client)
		b.Listen("")
		time.Sleep(time.Minute)
		begun := time.Now()
		b.stop()
		require.LessOrEqual(t, time.Since(begun), time.Second)
		putBack()
		synctest.Wait()
		again, putBack := client.Dedicate() // the listener has not kept it
		require.NoError(t, again.Do(context.Background(), again.B().Ping().Build()).Error())
		putBack()
	})
}

func TestAListenerThatStartsAtTheEnd(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.closed.Store(true)
		b.Listen("")
		synctest.Wait()
		require.Zero(t, b.mini.Calls("SUBSCRIBE"))
	})
}

// showed is what a server's clock showed in the answer to a request sent at sentAt.
const showed = int64(1_700_000_000_000_000)

var sentAt = clock.Instant{Mono: time.Hour, Wall: time.Duration(showed) * time.Microsecond}

// sampled is a master that nothing runs for, with one sample of its clock.
func sampled() *transport.Master {
	m := transport.NewMaster(&transport.Config{Drift: 0.01}, 0, &modeClient{mode: rueidis.ClientModeStandalone})
	m.Sample("", sentAt, showed)
	return m
}

func atMost(m *transport.Master, now clock.Instant) (micros int64, known bool) {
	return m.MaxServerTime("", m.At(""), "", now)
}

func TestTheMostThatAServersClockShows(t *testing.T) {
	moved := func(mono, wall time.Duration) clock.Instant {
		return clock.Instant{Mono: sentAt.Mono + mono, Wall: sentAt.Wall + wall}
	}
	for name, test := range map[string]struct {
		now  clock.Instant
		most time.Duration // since the sample
	}{
		"at once":                       {sentAt, 0},
		"later":                         {sentAt.Add(time.Second), 1010 * time.Millisecond},
		"the machine was suspended":     {moved(time.Second, time.Hour), time.Hour + time.Hour/100},
		"the wall clock was set back":   {moved(time.Second, -time.Hour), 1010 * time.Millisecond},
		"looked at before it was asked": {sentAt.Add(-time.Millisecond), 0},
	} {
		t.Run(name, func(t *testing.T) {
			most, known := atMost(sampled(), test.now)
			require.True(t, known)
			require.Equal(t, showed+test.most.Microseconds()+1, most)
		})
	}
}

func TestTheLatestSampleCounts(t *testing.T) {
	m := transport.NewMaster(&transport.Config{Drift: 0.01}, 0, &modeClient{mode: rueidis.ClientModeStandalone})
	_, known := atMost(m, sentAt)
	require.False(t, known)
	m.Sample("", sentAt, 0)
	_, known = atMost(m, sentAt)
	require.False(t, known, "the script did not read the clock")

	m.Sample("", sentAt, showed)
	m.Sample("", sentAt.Add(time.Millisecond), 0)
	m.Sample("", sentAt.Add(-time.Second), showed+5_000_000) // an answer that was overtaken
	most, _ := atMost(m, sentAt)
	require.Equal(t, showed+1, most)
	m.Sample("", sentAt.Add(time.Second), showed-5_000_000) // the server's clock was set back
	most, _ = atMost(m, sentAt.Add(time.Second))
	require.Equal(t, showed-5_000_000+1, most)
}

func TestALostSubscriptionMeansThatAnotherServerMayAnswer(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.Listen("")
		<-b.listens
		b.mustDo()
		_, known := b.MaxServerTime(b.now())
		require.True(t, known)
		before := b.now()
		time.Sleep(time.Millisecond)
		b.link.Cut()
		synctest.Wait()
		_, known = b.MaxServerTime(b.now())
		require.False(t, known)
		b.Sample("", before, showed) // a late answer to a request of before
		_, known = b.MaxServerTime(b.now())
		require.False(t, known)
		<-b.listens
		b.mustDo()
		_, known = b.MaxServerTime(b.now())
		require.True(t, known)
	})
}

// Replicas pass messages on, and so does a master that became one without its subscribers' knowing. So where another
// server can take the master's place, a message says which process has sent it.
func TestAMessageOfAnotherProcessTellsNothingOfTheClock(t *testing.T) {
	for _, binary := range testredis.Binaries() {
		server, replica := testredis.StartBinary(t, binary), testredis.StartBinary(t, binary)
		b := newBed(t, &modeClient{dial(t, server.Option()), rueidis.ClientModeSentinel})
		b.Listen("")
		<-b.listens
		b.mustDo()
		name := func(s *testredis.Server) string {
			reply := expect.NoError(s.Command("EVAL", "return string.sub(tostring(redis), 10)", "0")).In(t)
			return reply.(string)
		}
		_, known := b.Master.MaxServerTime("", b.home(), name(server), b.now())
		require.True(t, known)
		for _, other := range []string{name(replica), ""} {
			_, known = b.Master.MaxServerTime("", b.home(), other, b.now())
			require.False(t, known)
		}
		_, known = b.Master.MaxServerTime("", nil, name(server), b.now())
		require.False(t, known, "from nobody knows which node")
	}
}

// send is how a script sends a message: it cannot be undone by a refusal.
const send = "local heard = redis.pcall('SPUBLISH', ARGV[1], ARGV[2]) " +
	"return type(heard) == 'number' and heard or heard.err"

// What the messages of a Cluster stand on, on real servers: a script may publish to any slot of its server whatever the
// slot of its keys, and to no other; and where the slot of a channel moves away, the listener takes another.
func TestAChannelWhoseSlotMovesAway(t *testing.T) {
	for _, binary := range testredis.Binaries() {
		c := testredis.StartCluster(t, binary, 1)
		option := c.Option()
		option.DisableCache = true
		client := expect.NoError(rueidis.NewClient(option)).In(t)
		t.Cleanup(client.Close)
		b := newBed(t, client)
		require.Eventually(t, func() bool { return b.moves.Load() > 0 }, time.Minute, time.Millisecond)
		key := keyOn(c, c.Masters()[0])
		master := func() *testredis.Server { return c.Owner(c.Slot(key)) }
		b.Listen(key)
		<-b.listens
		before := string(b.Route(key))
		require.Equal(t, byte('s'), before[0])
		slot := c.Slot(before[1:])
		require.NotEqual(t, c.Slot(key), slot)

		require.EqualValues(t, 1, expect.NoError(master().Command("EVAL", send, "1", key, before[1:], "first")).In(t))
		require.Equal(t, "first", <-b.heard)

		c.BeginMove(slot, c.Another(c.Owner(slot))).End()
		<-b.listens
		after := string(b.Route(key))
		require.Equal(t, byte('s'), after[0])
		require.NotEqual(t, before, after)
		heard := expect.NoError(master().Command("EVAL", send, "1", key, before[1:], "lost")).In(t)
		require.IsType(t, "", heard, "a refusal inside the script: %v", heard)
		require.EqualValues(t, 1, expect.NoError(master().Command("EVAL", send, "1", key, after[1:], "second")).In(t))
		require.Equal(t, "second", <-b.heard)
	}
}

// keyOn returns a lock's first key that this master has.
func keyOn(c *testredis.Cluster, master *testredis.Server) string {
	for i := 1000; ; i++ { // the channel has the first number in its slots
		if key := keysOf(strconv.Itoa(i))[0]; c.Owner(int(transport.SlotOf(key))) == master {
			return key
		}
	}
}

func TestSlotsAreThoseOfTheServer(t *testing.T) {
	server := testredis.Start(t, "--cluster-enabled", "yes")
	for _, key := range []string{
		"", "a", "123456789", "fencelock:{n}", "fencelock:{n}:h", "{", "}", "{}", "a{}b", "a{}{b}", "a{{b}}c", "a{b}{c}",
		"a{b", "a}b{c}", "fencelock:c:01ARZ3NDEKTSV4RRFFQ69G5FAV:{17}", "ключ{замок}",
	} {
		slot := expect.NoError(server.Command("CLUSTER", "KEYSLOT", key)).In(t)
		require.EqualValues(t, slot, transport.SlotOf(key), "%q", key)
	}
}

// A channel lies in the slots that were asked for, and is the same whichever server has them.
func TestAChannelOfEachNode(t *testing.T) {
	for first, last := range map[uint16]uint16{0: 5460, 5461: 10922, 16383: 16383, 7: 7} {
		owned := func(slot uint16) bool { return first <= slot && slot <= last }
		channel, ok := transport.ChannelIn("prefix:c:id", owned)
		require.True(t, ok)
		require.True(t, owned(transport.SlotOf(channel)), channel)
		require.Regexp(t, `^prefix:c:id:\{\d+\}$`, channel)
		again, _ := transport.ChannelIn("prefix:c:id", owned)
		require.Equal(t, channel, again)
	}
	_, ok := transport.ChannelIn("c", func(uint16) bool { return false })
	require.False(t, ok)
}

package transport_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

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
		client, err := rueidis.NewClient(option)
		require.NoError(t, err)
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

		heard, err := master().Command("EVAL", send, "1", key, before[1:], "first")
		require.NoError(t, err)
		require.EqualValues(t, 1, heard)
		require.Equal(t, "first", <-b.heard)

		c.BeginMove(slot, c.Another(c.Owner(slot))).End()
		<-b.listens
		after := string(b.Route(key))
		require.Equal(t, byte('s'), after[0])
		require.NotEqual(t, before, after)
		heard, err = master().Command("EVAL", send, "1", key, before[1:], "lost")
		require.NoError(t, err)
		require.IsType(t, "", heard, "a refusal inside the script: %v", heard)
		heard, err = master().Command("EVAL", send, "1", key, after[1:], "second")
		require.NoError(t, err)
		require.EqualValues(t, 1, heard)
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

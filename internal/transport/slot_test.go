package transport_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

func TestSlotsAreThoseOfTheServer(t *testing.T) {
	server := testredis.Start(t, "--cluster-enabled", "yes")
	for _, key := range []string{
		"", "a", "123456789", "fencelock:{n}", "fencelock:{n}:h", "{", "}", "{}", "a{}b", "a{}{b}", "a{{b}}c", "a{b}{c}",
		"a{b", "a}b{c}", "fencelock:c:01ARZ3NDEKTSV4RRFFQ69G5FAV:{17}", "ключ{замок}",
	} {
		slot, err := server.Command("CLUSTER", "KEYSLOT", key)
		require.NoError(t, err)
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

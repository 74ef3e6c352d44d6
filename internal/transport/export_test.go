package transport

// SlotOf and ChannelIn are what the tests compare with a server's own answers.
var (
	SlotOf    = slotOf
	ChannelIn = channelIn
)

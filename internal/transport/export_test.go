package transport

// SlotOf and ChannelIn are what the tests compare with a server's own answers.
var (
	SlotOf    = slotOf
	ChannelIn = channelIn
)

// Gather adds a call to those that callers gather, as the first of them does before it sends them.
func (n *Node) Gather(c Call) { n.pipeline.isFirst(c) }

// SendGathered is what the first of the callers does next.
func (n *Node) SendGathered() { n.pipeline.sendGathered() }

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

// Kept returns how many senders the node keeps for batches of callers, and the calls that their arrays have room for.
func (n *Node) Kept() (senders, calls int) {
	p := n.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.spare {
		calls += cap(s.batch)
	}
	return len(p.spare), calls + cap(p.gathered)
}

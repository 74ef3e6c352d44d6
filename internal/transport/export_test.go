package transport

// SlotOf and ChannelIn are what the tests compare with a server's own answers.
var (
	SlotOf    = slotOf
	ChannelIn = channelIn
)

// Gather adds a call to those that callers gather, as the first of them does before it sends them.
func (n *Node) Gather(c Call) {
	if _, batch := n.pipeline.add(c); batch != nil {
		batch.sendGathered()
	}
}

// GatherAll adds calls at a moment at which no caller can send what is a batch.
func (n *Node) GatherAll(calls []Call) {
	var batches []*sender
	for _, c := range calls {
		if _, batch := n.pipeline.add(c); batch != nil {
			batches = append(batches, batch)
		}
	}
	for _, batch := range batches {
		batch.sendGathered()
	}
}

// SendGathered is what the first of the callers does next.
func (n *Node) SendGathered() {
	if batch := n.pipeline.takeGathered(); batch != nil {
		batch.sendGathered()
	}
}

// Kept returns how many senders the node keeps for batches of callers, and for how many calls the largest of their
// arrays has room.
func (n *Node) Kept() (senders, room int) {
	p := n.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	room = cap(p.gathered)
	for _, s := range p.spare {
		room = max(room, cap(s.batch), cap(s.groups.calls), cap(s.groups.releases), cap(s.groups.acquires))
	}
	return len(p.spare), room
}

package engine

import (
	"log/slog"

	"github.com/seed74116694/fencelock/internal/transport"
)

// mailbox receives the messages of the masters and handles nodes whose messages are not available. A message reports
// what the next refresh or renewal would report later, so a lost message costs time and nothing else.
type mailbox struct {
	e       *Engine
	channel string // prefix of the channel of each master, and of each node of a Cluster
}

// route returns how messages about this lock reach this engine, in the form of a hold's details. A route that begins
// with b says that the count of receivers shows nothing, so the master does not pass over the waiter. With several
// masters the result is such a route until the engine listens to each of them.
func (b *mailbox) route(lock string) (route string) {
	for _, m := range b.e.masters {
		if route = m.Route(lock); route[0] == 'b' {
			break
		}
	}
	return route
}

// onListen is called when messages of a node arrive from now on, or of all nodes if the node is nil. Earlier messages
// did not arrive here, so every possible recipient asks: the waiters, and the holders of shared holds.
func (b *mailbox) onListen(m *transport.Master, _ *transport.Node) {
	b.e.registry.lookAgain() // first: a hold that is granted after this has missed no message
	b.e.waiters[m.Index].wakeAll()
}

// listen subscribes to the messages about this lock, so that the holder of a shared hold learns about waiters in other
// processes.
func (b *mailbox) listen(lock string) {
	for _, m := range b.e.masters {
		m.Listen(lock)
	}
}

// onMoved is called when other servers answer for some keys of the master. They may not have the requests that the
// servers before them answered, so the waiters ask again, and recent releases are sent again.
func (b *mailbox) onMoved(m *transport.Master) {
	b.e.releases[m.Index].repeat()
	b.e.waiters[m.Index].wakeAll()
}

// onDeaf is called when messages of a node are not available, once until they are available again. Its waiters ask at
// an interval instead.
func (b *mailbox) onDeaf(m *transport.Master, n *transport.Node, err error) {
	observers := &b.e.observers
	observers.warn("messages to those who wait cannot be had; they ask instead, which costs more and takes longer",
		slog.String("master", n.Addr()), slog.Any("error", err))
	if hook := observers.hooks.NoMessages; hook != nil {
		observers.relay.Offer(func() { hook(n.Addr(), err) })
	}
	b.e.waiters[m.Index].wakeAll()
}

// unheard reports whether so many masters cannot send the hand-off message to this acquisition that no quorum can.
func (e *Engine) unheard(a *acquisition) bool { return e.deafTo(a.lease.key.lock()) }

// deafTo reports the same for every waiter of this lock.
func (e *Engine) deafTo(lock string) bool {
	deaf := func(m *transport.Master) bool { return m.Deaf(lock) }
	return e.count(deaf) > len(e.masters)-e.quorum()
}

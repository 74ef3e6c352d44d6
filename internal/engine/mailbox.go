package engine

import (
	"log/slog"

	"github.com/seed74116694/fencelock/internal/transport"
)

// mailbox is where the messages of the masters arrive, and what is done where they cannot be had. Each tells what the
// next refresh or renewal would tell later, so a lost one costs time and nothing else.
type mailbox struct {
	e       *Engine
	channel string // each master, and each node of a Cluster, has one that begins with it
}

// route is how messages about this lock reach this engine, as a hold's details name it. Its waiters are passed over
// where nobody hears of a hand-off; over several masters not before each of them is listened to.
func (b *mailbox) route(lock string) (route string) {
	for _, m := range b.e.masters {
		if route = m.Route(lock); route[0] == 'b' {
			break
		}
	}
	return route
}

// onListen is called when messages of a node arrive from now on, or of all nodes where none is named. What was sent
// before has reached nobody here, so all who could have been meant ask: the waiters, and the holders of cohorts.
func (b *mailbox) onListen(m *transport.Master, _ *transport.Node) {
	b.e.registry.lookAgain() // first: what the waiters are granted now has nothing to catch up with
	b.e.waiters[m.Index].wakeAll()
}

// listen has the messages about this lock arrive: the holder of a cohort is told of those who wait.
func (b *mailbox) listen(lock string) {
	for _, m := range b.e.masters {
		m.Listen(lock)
	}
}

// onMoved is called when other servers answer for some keys of the master. They may not know what the servers before
// them were asked for: the waiters ask, and what was released a moment ago is released again.
func (b *mailbox) onMoved(m *transport.Master) {
	b.e.releases[m.Index].repeat()
	b.e.waiters[m.Index].wakeAll()
}

// onDeaf is called when messages of a node cannot be had, once until they can. Its waiters ask at an interval instead.
func (b *mailbox) onDeaf(m *transport.Master, n *transport.Node, err error) {
	observers := &b.e.observers
	observers.warn("messages to those who wait cannot be had; they ask instead, which costs more and takes longer",
		slog.String("master", n.Addr()), slog.Any("error", err))
	if hook := observers.hooks.NoMessages; hook != nil {
		observers.relay.Offer(func() { hook(n.Addr(), err) })
	}
	b.e.waiters[m.Index].wakeAll()
}

// unheard reports whether so many masters cannot tell of a hand-off to this acquisition that no quorum can.
func (e *Engine) unheard(a *acquisition) bool { return e.deafTo(a.lease.key.lock()) }

// deafTo reports the same of whoever waits for this lock.
func (e *Engine) deafTo(lock string) bool {
	deaf := func(m *transport.Master) bool { return m.Deaf(lock) }
	return e.count(deaf) > len(e.masters)-e.quorum()
}

package transport

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// subscription is one way for messages to reach this process.
type subscription struct {
	client  rueidis.Client // gives the connection
	from    *Node          // the node whose messages arrive; nil for all
	at      string         // the address that it leads to; "" if the client has one server only
	channel string
	route   string // as the details of a hold name it: a letter, then the channel
}

// sharded reports whether the listener receives the messages of one node of a Cluster only.
func (l *listener) sharded() bool { return l.n != l.m.home }

// subscription returns how to listen now.
//
// In a Cluster PUBLISH goes to every node, and its count covers only the publishing node. SPUBLISH stays within one
// shard. So the listener of each node subscribes to a channel of its own, in one of the node's slots.
func (l *listener) subscription() (subscription, bool) {
	plain := l.m.cfg.Channel
	switch {
	case l.sharded():
		channel, ok := channelIn(plain, func(slot uint16) bool { return l.m.slots.Load().owner(slot) == l.n })
		return subscription{l.n.client, l.n, l.n.addr, channel, "s" + channel}, ok
	case l.m.cluster():
		s := subscription{l.m.client, nil, "", plain, "b" + plain}
		if nodes := l.m.direct(); len(nodes) > 0 {
			n := nodes[rand.N(len(nodes))]
			s.client, s.at = n.client, n.addr
		}
		return s, true
	case l.m.Standalone():
		return subscription{l.m.client, l.n, "", plain, "p" + plain}, true
	default:
		return subscription{l.m.client, l.n, l.m.Addr(), plain, "p" + plain}, true
	}
}

// right reports whether the subscription leads to a server that still sends the messages.
func (l *listener) right(s subscription) bool {
	switch {
	case l.sharded():
		return l.m.slots.Load().owner(slotOf(s.channel)) == l.n
	case !l.m.cluster():
		return s.at == "" || s.at == l.m.Addr()
	}
	nodes := l.m.direct()
	return s.at == "" && len(nodes) == 0 || slices.ContainsFunc(nodes, func(n *Node) bool { return n.addr == s.at })
}

// hears reports whether a message that names this process, in the form of the scripts, was sent by the server that the
// listener is connected to, and that this server answers now. A standalone server is assumed to stay the same.
func (l *listener) hears(process string) bool {
	if l.m.Standalone() {
		return true
	}
	h := l.state.Load()
	if !l.sharded() && h.at != l.m.Addr() {
		return false
	}
	if h.process != process && l.m.cfg.Clock.Now().Mono > h.since+renamedGap {
		l.renamed.Store(true)
		l.look()
	}
	return h.process == process
}

// renamedGap is the minimum age of a subscription before it is made again because the process has another name. The
// name changes when its scripts are flushed, and their interpreter with them.
const renamedGap = time.Second

// probe publishes as the scripts do, to a channel in the same slot as the listener's, without subscribers. It returns
// the name that scripts use for the process that runs them.
const (
	probe  = "redis.call(ARGV[1], ARGV[2], '') return string.sub(redis.sha1hex(tostring(redis)), 1, 12)"
	probed = ":probe"
)

// unsharded lists parts of the refusals of a server that does not know sharded messages, or denies them.
var unsharded = []string{
	"NOPERM", "ACL failure in script", "can't run this command", "nknown command", "nknown Redis command",
}

func refusesSharded(err error) bool {
	refusal, ok := refusalOf(err)
	return ok && slices.ContainsFunc(unsharded, func(part string) bool { return strings.Contains(refusal.Error(), part) })
}

// Listen starts to receive the messages of the key's node. It does not wait for the connection. If the nodes of a
// Cluster are unknown it has no effect, and has to be called again when OnMoved is called.
func (m *Master) Listen(key string) {
	if l := m.listenerOf(key); l != nil {
		l.start()
	}
}

// Listened is closed when the first attempt to listen is over. Its connection has been dialled by then.
func (m *Master) Listened() <-chan struct{} { return m.home.listener.tried }

// Route returns how messages about this key reach this process, in the form of the details of a hold: p and a channel
// if a message without receivers shows that the process does not listen, s for the same with sharded messages, and b if
// the count of receivers shows nothing. The last applies before the first waiter's subscription stands, and if messages
// are not available.
func (m *Master) Route(key string) string {
	if l := m.listenerOf(key); l != nil {
		return l.state.Load().route
	}
	return m.home.listener.state.Load().route
}

// Deaf reports whether messages about this key are not available.
func (m *Master) Deaf(key string) bool {
	l := m.listenerOf(key)
	return l != nil && l.state.Load().deaf
}

// listenerOf returns nil if the node to listen to is not known so far.
func (m *Master) listenerOf(key string) *listener {
	switch {
	case m.plain.Load() || !m.cluster():
		return m.home.listener
	case m.slots.Load() == nil:
		return nil
	}
	if n := m.At(key); n.direct {
		return n.listener
	}
	return m.home.listener // only the client can route to that server
}

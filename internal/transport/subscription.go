package transport

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// subscription is one way in which messages get to this process.
type subscription struct {
	client  rueidis.Client // gives the connection
	from    *Node          // whose messages arrive; nil for all
	at      string         // the address that it leads to; "" where the client has one server only
	channel string
	route   string // as the details of a hold name it: a letter, then the channel
}

// sharded reports whether the listener's messages are those of one node of a Cluster.
func (l *listener) sharded() bool { return l.n != l.m.home }

// subscription returns how to listen now.
//
// In a Cluster PUBLISH goes to every node, and its count says nothing of the others. SPUBLISH stays among the servers
// of one shard; so each node is listened to on a channel of its own, in one of its slots.
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

// right reports whether the subscription leads to where messages are still sent from.
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

// hears reports whether a message of this process, as a script names it, is from the server that is listened to, and
// that answers now. A standalone server is taken to be one and the same.
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

// renamedGap is the least age of a subscription that is made anew because the process has another name: its scripts
// have been flushed, and their interpreter with them.
const renamedGap = time.Second

// probe publishes as the scripts do, to a channel beside the listener's, in the same slot, that nobody listens on. It
// returns how scripts name the process that runs them.
const (
	probe  = "redis.call(ARGV[1], ARGV[2], '') return string.sub(redis.sha1hex(tostring(redis)), 1, 12)"
	probed = ":probe"
)

// unsharded are parts of what a server says that does not know sharded messages, or denies them.
var unsharded = []string{
	"NOPERM", "ACL failure in script", "can't run this command", "nknown command", "nknown Redis command",
}

func refusesSharded(err error) bool {
	refusal, ok := refusalOf(err)
	return ok && slices.ContainsFunc(unsharded, func(part string) bool { return strings.Contains(refusal.Error(), part) })
}

// Listen makes the messages of the node of this key arrive from now on. It does not wait for the connection. Where the
// nodes of a Cluster are not known yet it is to be called again, as OnMoved tells.
func (m *Master) Listen(key string) {
	if l := m.listenerOf(key); l != nil {
		l.start()
	}
}

// Listened is closed when the first attempt to listen is over: its connection is opened by then.
func (m *Master) Listened() <-chan struct{} { return m.home.listener.tried }

// Route is how messages about this key reach this process, as the details of a hold name it: p and a channel where a
// message that nobody receives tells that nobody listens; s for the same with sharded messages; b where the count of
// receivers says nothing, as before the first waiter's subscription stands, and where messages cannot be had.
func (m *Master) Route(key string) string {
	if l := m.listenerOf(key); l != nil {
		return l.state.Load().route
	}
	return m.home.listener.state.Load().route
}

// Deaf reports whether messages about this key cannot be had.
func (m *Master) Deaf(key string) bool {
	l := m.listenerOf(key)
	return l != nil && l.state.Load().deaf
}

// listenerOf returns nil where it is not known yet which node is to be listened to.
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
	return m.home.listener // the client alone knows the way to that server
}

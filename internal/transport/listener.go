package transport

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/wire"
)

// listener receives the messages to this process from one node, on a separate connection, from the first waiter until
// the node ends. The listener of a Cluster's home receives the messages of all nodes, if the Cluster has no sharded
// messages. Messages are hints: after every new connection all waiters ask again, and between connections their refresh
// finds what was missed.
type listener struct {
	m     *Master
	n     *Node
	once  sync.Once     // starts it
	first sync.Once     // closes tried
	tried chan struct{} // closed when the first attempt to listen is over
	again chan struct{} // asks whether the connection still leads to the right server
	state atomic.Pointer[subscriptionState]

	renamed atomic.Bool // a message named a process other than that of the subscription
}

// subscriptionState describes whether and how messages arrive.
type subscriptionState struct {
	route   wire.Route // how messages reach this process
	at      string     // the address of the client's server when the subscription was made
	process string     // the process that the subscription leads to, as scripts name it
	dials   uint64     // how many connections but for messages the client of a standalone server had opened
	since   time.Duration
	down    bool // messages are not available
}

// look asks whether the connection still leads to the right server.
func (l *listener) look() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// failures counts consecutive failed attempts to listen.
type failures struct {
	n     int
	since time.Duration // when the first attempt began, or the previous connection was lost
}

// supervise dedicates a new connection whenever the last one broke, because rueidis does not.
func (l *listener) supervise(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.m.cfg.Listening, cancel)()
	failed := failures{since: l.m.cfg.Clock.Now().Mono}
	for ctx.Err() == nil && !(l.sharded() && l.m.plain.Load()) {
		stood := l.listen(ctx, failed)
		now := l.m.cfg.Clock.Now().Mono
		if stood {
			failed = failures{since: now}
		}
		l.n.clock.forget(now)
		l.m.suspect()
		wait := time.NewTimer(Backoff(failed.n))
		failed.n++
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
}

// listen returns when the connection is lost or leads to the wrong server, and reports whether it ever stood.
func (l *listener) listen(ctx context.Context, failed failures) (stood bool) {
	sub, ok := l.subscription()
	if !ok {
		return false
	}
	before := l.m.OtherDials()
	taken := make(chan struct{}, 1)
	c := l.dedicate(ctx, sub.client, rueidis.PubSubHooks{
		OnMessage: func(msg rueidis.PubSubMessage) { l.m.cfg.OnMessage(l.m, sub.from, msg.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "sunsubscribe" { // the slot of the channel has moved to another node
				select {
				case taken <- struct{}{}:
				default:
				}
			}
		},
	})
	if c == nil {
		return false
	}
	defer l.drop(ctx, c)
	process, ok := l.subscribe(ctx, c.client, sub, failed, c.broken)
	if !ok {
		return false
	}
	l.renamed.Store(false)
	now := l.m.cfg.Clock.Now().Mono
	l.state.Store(&subscriptionState{route: sub.route, at: sub.at, process: process, dials: before, since: now})
	l.m.cfg.OnListen(l.m, sub.from)
	l.stand(ctx, sub, before, c.broken, taken)
	return true
}

// stand returns when the connection is lost or leads to the wrong server. The address of a standalone server may lead
// to another machine or, behind a proxy, to another server once the client has opened another connection, but for one
// that is for messages.
func (l *listener) stand(
	ctx context.Context, sub subscription, dials uint64, broken <-chan error, taken <-chan struct{},
) {
	for {
		dialled := l.m.NextDial()
		if !l.right(sub) || l.renamed.Load() || l.m.Standalone && l.m.OtherDials() != dials {
			return
		}
		select {
		case <-broken:
			return
		case <-taken:
			return
		case <-ctx.Done():
			return
		case <-l.again:
		case <-dialled:
		}
	}
}

// refusedMost bounds the pause between attempts to subscribe that the server refuses.
const refusedMost = time.Minute

// subscribe reports whether messages arrive, and of which process. A permanent refusal is tried again over the same
// connection, because a new connection would look like another server.
func (l *listener) subscribe(
	ctx context.Context, c rueidis.DedicatedClient, sub subscription, failed failures, broken <-chan error,
) (process string, ok bool) {
	for pause := time.Second; ; pause = min(2*pause, refusedMost) {
		attempt, cancel := context.WithTimeout(ctx, l.m.cfg.BatchTimeout)
		process, err := l.make(withoutDeadline{attempt}, c, sub)
		silent := attempt.Err() != nil
		cancel()
		l.first.Do(func() { close(l.tried) })
		if err == nil || ctx.Err() != nil {
			return process, err == nil
		}
		if l.sharded() && refusesSharded(err) {
			l.m.plain.Store(true)
			l.m.cfg.OnMoved(l.m)
			return "", false
		}
		// The server may answer calls while attempts to listen fail one after the other.
		answers := failed.n >= passingFailures && !FromCluster(err) && l.n.clock.answeredSince(failed.since)
		lasts := l.m.Permanent(err)
		if lasts || silent || answers {
			l.subscribeFailed(err)
		}
		if !lasts {
			return "", false
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-broken:
			wait.Stop()
			return "", false
		case <-l.again:
			wait.Stop()
			return "", false
		case <-ctx.Done():
			wait.Stop()
			return "", false
		}
	}
}

// make subscribes. Before that it tests, over the same connection, whether scripts may publish: a refusal inside a
// script that hands on a lock reaches no client. And it tests whether one address leads to a replica. A replica
// forwards messages to subscribers that the granting server has not counted and has passed over.
func (l *listener) make(ctx context.Context, c rueidis.DedicatedClient, sub subscription) (process string, err error) {
	publish := "PUBLISH"
	if l.sharded() {
		publish = "SPUBLISH"
	}
	probing := c.B().Eval().Script(probe).Numkeys(0).Arg(publish, sub.channel+probed).Build()
	process, err = c.Do(ctx, probing).ToString()
	if refusal, ok := refusalOf(err); ok && (l.m.Permanent(refusal) || l.sharded() && refusesSharded(refusal)) {
		return "", err
	}
	if err == nil && l.m.Standalone && l.m.tuned {
		if err := onlyReadOnly(CheckWrite(ctx, c, sub.channel).Error()); err != nil {
			l.m.Leave(err)
			return "", err
		}
	}
	subscribe := c.B().Subscribe().Channel(sub.channel).Build()
	if l.sharded() {
		subscribe = c.B().Ssubscribe().Channel(sub.channel).Build()
	}
	return process, c.Do(ctx, subscribe).Error()
}

// passingFailures is how many consecutive failures are taken for a lost connection that can be restored.
const passingFailures = 2

// subscribeFailed records that messages are not available although the server answers, and reports it once.
func (l *listener) subscribeFailed(err error) {
	before := l.state.Load()
	if before.down || l.n.Failing() {
		return
	}
	l.state.Store(&subscriptionState{route: wire.Uncounted(l.m.cfg.Channel), down: true})
	l.m.cfg.OnSubscribeFailed(l.m, l.n, err)
}

// dialGrace is how long the end of the engine waits for a dial in progress, and for the answer to a subscription.
const dialGrace = time.Second

// drop closes the connection, which waits for the answers to its commands, and gives it back.
func (l *listener) drop(ctx context.Context, c *dedicated) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.client.Close() // a kept connection is cleaned up first, by commands that the locks' user may not run
		c.putBack()
	}()
	select {
	case <-closed:
		return
	case <-ctx.Done():
	}
	grace := time.NewTimer(dialGrace)
	defer grace.Stop()
	select {
	case <-closed:
	case <-grace.C:
	}
}

// dedicated is a connection for messages.
type dedicated struct {
	client  rueidis.DedicatedClient
	putBack func()
	broken  <-chan error
}

// dedicate waits for a connection with these hooks, but not past ctx for a connection that another caller has: a
// client's pool may have a size of one. The goroutine that keeps waiting then ends when that connection is given back,
// or when the client is closed.
func (l *listener) dedicate(ctx context.Context, from rueidis.Client, hooks rueidis.PubSubHooks) *dedicated {
	got := make(chan *dedicated, 1)
	go func() {
		c := new(dedicated)
		l.m.ForMessages(func() { c.client, c.putBack = from.Dedicate() })
		// With RESP2 the client opens a second connection here, since the first one cannot subscribe beside commands.
		l.m.ForMessages(func() { c.broken = c.client.SetPubSubHooks(hooks) })
		got <- c
	}()
	select {
	case c := <-got:
		return c
	case <-ctx.Done():
	}
	grace := time.NewTimer(dialGrace)
	defer grace.Stop()
	select {
	case c := <-got:
		l.drop(ctx, c)
	case <-grace.C:
		go func() { l.drop(ctx, <-got) }()
	}
	return nil
}

// subscription is one way for messages to reach this process.
type subscription struct {
	client  rueidis.Client // gives the connection
	from    *Node          // the node whose messages arrive; nil for all
	at      string         // the address that it leads to; "" if the client has one server only
	channel string
	route   wire.Route
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
		return subscription{l.n.client, l.n, l.n.addr, channel, wire.Sharded(channel)}, ok
	case l.m.cluster:
		s := subscription{l.m.client, nil, "", plain, wire.Uncounted(plain)}
		if nodes := l.m.direct(); len(nodes) > 0 {
			n := nodes[rand.N(len(nodes))]
			s.client, s.at = n.client, n.addr
		}
		return s, true
	case l.m.Standalone:
		return subscription{l.m.client, l.n, "", plain, wire.Published(plain)}, true
	default:
		return subscription{l.m.client, l.n, l.m.Addr(), plain, wire.Published(plain)}, true
	}
}

// channelIn returns base with a hash tag that puts it into one of a node's slots. The result depends only on the slots,
// not on the server that owns them, so it survives a failover.
func channelIn(base string, owned func(slot uint16) bool) (channel string, ok bool) {
	for i := range 64 * slotCount {
		channel = base + ":{" + strconv.Itoa(i) + "}"
		if owned(slotOf(channel)) {
			return channel, true
		}
	}
	return "", false
}

// right reports whether the subscription leads to a server that still sends the messages.
func (l *listener) right(s subscription) bool {
	switch {
	case l.sharded():
		return l.m.slots.Load().owner(slotOf(s.channel)) == l.n
	case !l.m.cluster:
		return s.at == "" || s.at == l.m.Addr()
	}
	nodes := l.m.direct()
	return s.at == "" && len(nodes) == 0 || slices.ContainsFunc(nodes, func(n *Node) bool { return n.addr == s.at })
}

// isFromServer reports whether a message that names this process, in the form of the scripts, was sent by the server
// that the listener is connected to, and that this server answers now.
//
// The name of a standalone server is not compared: some servers have an interpreter for each thread. The server is
// assumed to stay the same until the client has opened another connection, but for one that is for messages: an address
// may lead to another server then.
func (l *listener) isFromServer(process string) bool {
	h := l.state.Load()
	if l.m.Standalone {
		return h.dials == l.m.OtherDials()
	}
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
	probe  = "redis.call(ARGV[1], ARGV[2], '') return string.sub(tostring(redis), 10)"
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

package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// listener receives the messages to this process from one node, on a connection of its own, from the first waiter until
// the node comes to its end. That of a Cluster's home receives the messages of all nodes, where the Cluster has no
// sharded ones. Messages are hints: whenever the connection is new, all waiters ask again, and between times their
// refresh finds whatever was missed.
type listener struct {
	m     *Master
	n     *Node
	once  sync.Once
	tried chan struct{} // closed when the first attempt to listen is over
	again chan struct{} // asks whether the connection is still that to the right server
	state atomic.Pointer[hearing]

	renamed atomic.Bool // a message named another process than the subscription was made with
}

// hearing is whether messages arrive, and where.
type hearing struct {
	route   string // how they get here, as the details of a hold name it
	at      string // where the client had its server when the subscription was made
	process string // that it leads to, as scripts name it
	since   time.Duration
	deaf    bool // they cannot be had
}

func newListener(m *Master, n *Node) *listener {
	l := &listener{m: m, n: n, tried: make(chan struct{}), again: make(chan struct{}, 1)}
	l.state.Store(&hearing{route: "b" + m.cfg.Channel})
	return l
}

func (l *listener) start() {
	l.once.Do(func() { l.m.cfg.Spawn(func() { l.supervise(l.n.life) }) })
}

// look asks whether the connection is still that to the right server.
func (l *listener) look() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// firstTry closes tried.
func (l *listener) firstTry() {
	select {
	case <-l.tried:
	default:
		close(l.tried)
	}
}

// failures are attempts to listen that came to nothing, one after the other.
type failures struct {
	n     int
	since time.Duration // when the first began, or the connection before it was lost
}

// supervise dedicates a connection again whenever the last one broke: rueidis does not.
func (l *listener) supervise(ctx context.Context) {
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

// listen returns when the connection is lost, or leads to the wrong server, and whether it had ever stood.
func (l *listener) listen(ctx context.Context, failed failures) (stood bool) {
	sub, ok := l.subscription()
	if !ok {
		return false
	}
	c, giveBack := l.dedicate(ctx, sub.client)
	if c == nil {
		return false
	}
	defer giveBack()
	defer c.Close()
	taken := make(chan struct{}, 1)
	broken := c.SetPubSubHooks(rueidis.PubSubHooks{
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
	process, ok := l.subscribe(ctx, c, sub, failed, broken)
	if !ok {
		return false
	}
	l.renamed.Store(false)
	l.state.Store(&hearing{route: sub.route, at: sub.at, process: process, since: l.m.cfg.Clock.Now().Mono})
	l.m.cfg.OnListen(l.m, sub.from)
	l.stand(ctx, sub, broken, taken)
	return true
}

// stand returns when the connection is lost or leads to the wrong server. Where a standalone server is known by one
// address, calls that are dialled to another machine than before tell that the name has moved.
func (l *listener) stand(ctx context.Context, sub subscription, broken <-chan error, taken <-chan struct{}) {
	here, before, dialled := l.m.lastDials()
	for {
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
		var call string
		_, call, dialled = l.m.lastDials()
		if !l.right(sub) || l.renamed.Load() || l.m.Standalone() && call != before && call != here {
			return
		}
	}
}

// refusedMost bounds the pause between attempts to subscribe that the server refuses.
const refusedMost = time.Minute

// subscribe returns whether messages arrive, and of which process. What a server refuses for good is tried again over
// the same connection: a new one would look like another server.
func (l *listener) subscribe(
	ctx context.Context, c rueidis.DedicatedClient, sub subscription, failed failures, broken <-chan error,
) (process string, ok bool) {
	for pause := time.Second; ; pause = min(2*pause, refusedMost) {
		attempt, cancel := context.WithTimeout(ctx, l.m.cfg.Patience)
		process, err := l.make(withoutDeadline{attempt}, c, sub)
		silent := attempt.Err() != nil
		cancel()
		l.firstTry()
		if err == nil || ctx.Err() != nil {
			return process, err == nil
		}
		if l.sharded() && refusesSharded(err) {
			l.m.plain.Store(true)
			l.m.cfg.OnMoved(l.m)
			return "", false
		}
		lasts := l.m.Permanent(err)
		if lasts || silent || l.answeredOtherwise(failed, err) {
			l.deafened(err)
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

// make subscribes. Before that it tries, over the same connection, whether scripts may publish: nobody is told of a
// refusal in a script that hands on a lock.
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
	subscribe := c.B().Subscribe().Channel(sub.channel).Build()
	if l.sharded() {
		subscribe = c.B().Ssubscribe().Channel(sub.channel).Build()
	}
	return process, c.Do(ctx, subscribe).Error()
}

// passingFailures in a row are taken for a connection that was lost, and can be had again.
const passingFailures = 2

// answeredOtherwise reports whether the server goes on answering calls while one attempt to listen fails after the
// other.
func (l *listener) answeredOtherwise(failed failures, err error) bool {
	return failed.n >= passingFailures && !FromCluster(err) && l.n.clock.answeredSince(failed.since)
}

// deafened notes that messages cannot be had although the server answers, and tells of it once.
func (l *listener) deafened(err error) {
	before := l.state.Load()
	if before.deaf || l.n.Failing() {
		return
	}
	l.state.Store(&hearing{route: "b" + l.m.cfg.Channel, deaf: true})
	l.m.cfg.OnDeaf(l.m, l.n, err)
}

// dialGrace is how long the end of the engine waits for a dial that is under way.
const dialGrace = time.Second

// dedicate waits for a connection, but not past ctx for one that others have: a client's pool may be as small as one.
// The goroutine that waits on is then ended by whoever gives that connection back, or closes the client.
func (l *listener) dedicate(
	ctx context.Context, from rueidis.Client,
) (c rueidis.DedicatedClient, giveBack func()) {
	type connection struct {
		client   rueidis.DedicatedClient
		giveBack func()
	}
	got := make(chan connection, 1)
	go func() {
		client, giveBack := from.Dedicate()
		got <- connection{client, giveBack}
	}()
	select {
	case c := <-got:
		return c.client, c.giveBack
	case <-ctx.Done():
	}
	grace := time.NewTimer(dialGrace)
	defer grace.Stop()
	drop := func(c connection) {
		c.client.Close() // one that is kept is cleaned up first, by commands that the locks' user may not run
		c.giveBack()
	}
	select {
	case c := <-got:
		drop(c)
	case <-grace.C:
		go func() { drop(<-got) }()
	}
	return nil, nil
}

package transport

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Node is one server, as far as the client tells them apart: the unit of health. What is slow, frozen or down there
// holds up nothing that is sent elsewhere. A standalone server and a Sentinel group are one node; a Cluster has one for
// each server that owns slots, and one more (home) for what is sent while the owner of a slot is not known.
type Node struct {
	m         *Master
	addr      string          // "" is home: the client decides which server answers
	client    rueidis.Client  // reaches this server only, where the node is direct
	direct    bool            // else client is the master's
	life      context.Context // ends when the node has no slots any more, or the engine gives up
	end       context.CancelFunc
	health    health
	clock     serverClock
	answers   atomic.Int64 // in a row, without a failed request
	stale     atomic.Bool  // its client has been closed: the node is to be made anew
	separated atomic.Bool  // a call names one lock: the server refuses keys of several slots
	pipeline  *pipeline
	listener  *listener

	replicated *pipeline // for calls whose answers count only once replicas have them; nil where none are asked
}

// newNode returns a node that the client itself routes to where client is nil.
func (m *Master) newNode(addr string, client rueidis.Client) *Node {
	n := &Node{m: m, addr: addr, client: client, direct: client != nil, clock: serverClock{drift: m.cfg.Drift}}
	if !n.direct {
		n.client = m.client
	}
	n.separated.Store(m.cluster())
	n.life, n.end = m.cfg.Life, func() {}
	if addr != "" {
		n.life, n.end = context.WithCancel(m.cfg.Life)
	}
	n.pipeline = newPipeline(n, batchesAtOnce)
	if m.cfg.Replicas > 0 {
		n.replicated = newPipeline(n, 1)
	}
	n.listener = newListener(m, n)
	return n
}

// Addr names the server in messages.
func (n *Node) Addr() string {
	if n.addr == "" {
		return n.m.Addr()
	}
	return n.addr
}

// Backoff returns why background work for this server has to wait, and until when; nil if it need not.
func (n *Node) Backoff(now time.Duration) (until time.Duration, cause error) {
	return n.health.backoff(now)
}

// Ended reports whether the node has no slots any more: no request goes to it from here on.
func (n *Node) Ended() bool { return n.life.Err() != nil }

// Failing reports whether the last request to the server went without an answer.
func (n *Node) Failing() bool { return n.health.failing() }

// answered notes an answer, a refusal too.
func (n *Node) answered() {
	if n.health.failing() {
		n.health.succeeded()
	}
}

// unanswered notes that a request went without an answer; cause is nil where that says nothing of the server.
func (n *Node) unanswered(cause error) {
	n.answers.Store(0)
	n.clock.doubt()
	if cause != nil {
		n.health.failed(n.m.cfg.Clock.Now().Mono, cause)
		n.m.suspect()
	}
}

// replaced notes that another server answers from now on.
func (n *Node) replaced() {
	n.answers.Store(0)
	n.clock.forget(n.m.cfg.Clock.Now().Mono)
	n.health.succeeded()
}

// separate has the node's calls name one lock each from now on.
func (n *Node) separate(cause error) {
	if n.separated.CompareAndSwap(false, true) {
		n.m.cfg.OnSeparated(n, cause)
	}
}

// elsewhere notes that requests have been answered by other servers up to now: their times are not this server's.
func (n *Node) elsewhere() { n.clock.forget(n.m.cfg.Clock.Now().Mono + 1) }

package transport

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Node is one server, as far as the client distinguishes servers: the unit of health. A slow, frozen or failed node
// delays no request to another node. A standalone server and a Sentinel group are one node. A Cluster has one node for
// each server that owns slots, and one more (home) for requests while the owner of a slot is unknown.
type Node struct {
	m         *Master
	addr      string          // "" for home: the client decides which server answers
	client    rueidis.Client  // reaches this server only, if the node is direct
	direct    bool            // else client is the master's
	life      context.Context // ends when the node has no slots any more, or when the engine gives up
	end       context.CancelFunc
	health    health
	clock     serverClock
	answers   atomic.Int64 // consecutive, without a failed request
	stale     atomic.Bool  // its client has been closed: the node has to be made again
	separated atomic.Bool  // a call names one lock, because the server refuses keys of several slots
	pipeline  *pipeline
	listener  *listener

	replicated *pipeline // for calls whose answers count only with replicas; nil without replicas
}

// newNode returns a node. If client is nil, the master's client routes its calls.
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

// Addr returns the address of the server, for messages.
func (n *Node) Addr() string {
	if n.addr == "" {
		return n.m.Addr()
	}
	return n.addr
}

// Backoff returns why background work for this server has to wait, and until when. The cause is nil if it need not
// wait.
func (n *Node) Backoff(now time.Duration) (until time.Duration, cause error) {
	return n.health.backoff(now)
}

// Ended reports whether the node has no slots any more: no further request goes to it.
func (n *Node) Ended() bool { return n.life.Err() != nil }

// Failing reports whether the last request to the server got no answer.
func (n *Node) Failing() bool { return n.health.failing() }

// answered records an answer. A refusal is an answer too.
func (n *Node) answered() {
	if n.health.failing() {
		n.health.succeeded()
	}
}

// unanswered records a request without an answer. cause is nil if the failure says nothing about the server.
func (n *Node) unanswered(cause error) {
	n.answers.Store(0)
	n.clock.doubt()
	if cause != nil {
		n.health.failed(n.m.cfg.Clock.Now().Mono, cause)
		n.m.suspect()
	}
}

// replaced records that a different server answers from now on.
func (n *Node) replaced() {
	n.answers.Store(0)
	n.clock.forget(n.m.cfg.Clock.Now().Mono)
	n.health.succeeded()
}

// separate makes the node's calls name one lock each from now on.
func (n *Node) separate(cause error) {
	if n.separated.CompareAndSwap(false, true) {
		n.m.cfg.OnSeparated(n, cause)
	}
}

// elsewhere records that other servers have answered requests up to now: their times are not the times of this server.
func (n *Node) elsewhere() { n.clock.forget(n.m.cfg.Clock.Now().Mono + 1) }

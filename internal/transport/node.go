package transport

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Node is one server, as far as the client distinguishes servers: the unit of health. A slow, frozen or failed node
// delays no request to another node. A standalone server and a Sentinel group are one node. A Cluster has one node for
// each server that owns slots, and one more (home) for requests while the owner of a slot is unknown.
type Node struct {
	m      *Master
	addr   string          // "" for home: the client decides which server answers
	client rueidis.Client  // reaches this server only, if the node is direct
	direct bool            // else client is the master's
	life   context.Context // ends when the node has no slots any more, or when the engine gives up
	end    context.CancelFunc
	health
	clock     serverClock
	answers   atomic.Int64 // consecutive, without a failed request
	met       atomic.Bool  // OnFirstAnswer was called for the server
	stale     atomic.Bool  // its client has been closed: the node has to be made again
	separated atomic.Bool  // a call names one lock, because the server refuses keys of several slots
	listener  *listener
	inFlight  atomic.Int64 // calls without an answer: of callers, and of batches
	ungrouped atomic.Int64 // how many calls are still in no group

	pipeline   *pipeline
	replicated *pipeline // for calls whose answers count only with replicas; without replicas the same as pipeline
}

// newNode returns a node. If client is nil, the master's client routes its calls.
func newNode(m *Master, addr string, client rueidis.Client) *Node {
	n := &Node{m: m, addr: addr, client: client, direct: client != nil, clock: serverClock{drift: m.cfg.Drift}}
	if !n.direct {
		n.client = m.client
	}
	n.separated.Store(m.cluster)
	n.life, n.end = m.cfg.Life, func() {}
	if addr != "" {
		n.life, n.end = context.WithCancel(m.cfg.Life)
	}
	n.pipeline = &pipeline{n: n, most: batchesAtOnce, wake: make(chan struct{}, batchesAtOnce)}
	n.replicated = n.pipeline
	if m.cfg.Replicas > 0 {
		n.replicated = &pipeline{n: n, most: 1, wake: make(chan struct{}, 1), replicates: true}
	}
	n.listener = &listener{m: m, n: n, tried: make(chan struct{}), again: make(chan struct{}, 1)}
	n.listener.state.Store(&subscriptionState{route: wire.Uncounted(m.cfg.Channel)})
	return n
}

func (n *Node) of(replicated bool) *pipeline {
	if replicated {
		return n.replicated
	}
	return n.pipeline
}

func (n *Node) run() {
	if n.replicated != n.pipeline {
		n.m.cfg.Spawn(n.replicated.run)
	}
	n.pipeline.run()
}

// Addr returns the address of the server, for messages.
func (n *Node) Addr() string {
	if n.addr == "" {
		return n.m.Addr()
	}
	return n.addr
}

// Ended reports whether the node has no slots any more: no further request goes to it.
func (n *Node) Ended() bool { return n.life.Err() != nil }

// answered records an answer. A refusal is an answer too.
func (n *Node) answered() {
	n.succeeded()
	if !n.met.Load() && n.met.CompareAndSwap(false, true) {
		n.m.cfg.OnFirstAnswer(n)
	}
}

// unanswered records a request without an answer. cause is nil if the failure says nothing about the server.
func (n *Node) unanswered(cause error) {
	n.answers.Store(0)
	n.clock.doubt()
	if cause != nil {
		n.failed(n.m.cfg.Clock.Now().Mono, cause)
		n.m.suspect()
	}
}

// separate has calls to the node name one lock each from here on.
func (n *Node) separate(refusal error) {
	if n.separated.CompareAndSwap(false, true) {
		n.m.cfg.OnSeparated(n, refusal)
	}
}

// answeredByOther records that other servers have answered requests up to now: their times are not the times of this
// server.
func (n *Node) answeredByOther() { n.clock.forget(n.m.cfg.Clock.Now().Mono + 1) }

// health records whether a server answers, and when it may be tried again.
type health struct {
	mu       sync.Mutex
	failures int // consecutive
	cause    error
	retryAt  time.Duration // when work that nobody waits for may be tried again
	triedAt  time.Duration // the last attempt since it failed
}

// The backoff of work that nobody waits for doubles between its limits. Urgent work is let through every urgentGap.
const (
	BackoffMin = 10 * time.Millisecond
	BackoffMax = time.Second
	urgentGap  = 20 * time.Millisecond
)

func (h *health) succeeded() {
	h.mu.Lock()
	h.failures, h.retryAt, h.cause = 0, 0, nil
	h.mu.Unlock()
}

func (h *health) failed(now time.Duration, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause, h.triedAt = cause, now
	if now < h.retryAt { // one broken connection fails all requests on it
		return
	}
	wait := Backoff(h.failures)
	h.failures++
	h.retryAt = now + wait
}

// Backoff returns how long to wait after this many consecutive failures: doubled each time, capped, with jitter.
func Backoff(failures int) time.Duration {
	wait := min(BackoffMin<<min(failures, 10), BackoffMax)
	return wait/2 + rand.N(wait/2+1)
}

// Failing reports whether the last request to the server got no answer.
func (h *health) Failing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures > 0
}

// Backoff returns why work that nobody waits for is put off, and until when. The cause is nil if it is not.
func (h *health) Backoff(now time.Duration) (until time.Duration, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now < h.retryAt {
		return h.retryAt, h.cause
	}
	return 0, nil
}

// urgent reports whether an urgent call may go out now and records the attempt, so that one of several concurrent
// callers probes the server. If it may not, urgent returns the cause of the failure and until when to wait.
func (h *health) urgent(now time.Duration) (until time.Duration, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil && now < h.triedAt+urgentGap {
		return h.triedAt + urgentGap, h.cause
	}
	h.triedAt = now
	return 0, nil
}

// Refuses returns why a call that must not wait for the next attempt fails now, as it does in Master.Do, or nil.
func (n *Node) Refuses(now time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cause != nil && now < n.triedAt+urgentGap {
		return n.m.notSent(n.cause)
	}
	return nil
}

// Replica returns the refusal of a server that is a replica, or why it is not known whether it is one. What a replica
// shows is not what its master has: while it synchronizes it may be empty.
func (n *Node) Replica(ctx context.Context, key string) error {
	return refusesAsReplica(ctx, n.client, key)
}

// EvictionPolicy returns the server's maxmemory-policy, and whether its memory is limited, without which it evicts
// nothing. The policy is not known if the server does not tell: the user of the locks may not be allowed to ask, and of
// a Cluster it is not known which server answers for all slots.
func (n *Node) EvictionPolicy(ctx context.Context) (policy string, limited, known bool) {
	if !n.direct && n.m.cluster {
		return "", false, false
	}
	text, err := n.client.Do(withoutDeadline{ctx}, n.client.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return "", false, false
	}
	for line := range strings.Lines(text) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "maxmemory":
			limited = value != "0"
		case "maxmemory_policy":
			policy = value
		}
	}
	return policy, limited, policy != ""
}

// serverClock bounds the time that a server's clock can show, from the last answer that contained the server's time.
type serverClock struct {
	drift clock.Drift

	mu      sync.Mutex
	since   time.Duration // another server may have answered requests sent before this
	sent    clock.Instant // just before the request that returned micros was sent
	micros  int64         // 0 if unknown
	suspect bool          // a later request was not answered
}

func (s *serverClock) sample(sent clock.Instant, micros int64) {
	s.mu.Lock()
	if micros > 0 && sent.Mono >= s.sent.Mono && sent.Mono >= s.since {
		s.sent, s.micros, s.suspect = sent, micros, false
	}
	s.mu.Unlock()
}

// forget drops the sample, and ignores samples from requests that were sent before that time, because another server
// may have answered them.
func (s *serverClock) forget(since time.Duration) {
	s.mu.Lock()
	s.micros, s.since = 0, max(s.since, since)
	s.mu.Unlock()
}

func (s *serverClock) doubt() {
	s.mu.Lock()
	s.suspect = true
	s.mu.Unlock()
}

// answeredWithin reports whether the same server answered a request of at most this age, and no request has failed
// since.
func (s *serverClock) answeredWithin(age time.Duration, now clock.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.suspect && s.micros != 0 && now.AtMostSince(s.sent) < age
}

// answeredSince reports whether a request that was sent after that time has been answered.
func (s *serverClock) answeredSince(t time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent.Mono > t
}

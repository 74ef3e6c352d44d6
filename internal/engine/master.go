package engine

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// master is one Redis that decides for itself: a standalone server, a Sentinel group or a Cluster.
type master struct {
	e      *Engine
	index  int
	client rueidis.Client
	lane   *lane
	sub    *subscription

	mu       sync.Mutex
	failures int // in a row
	cause    error
	retryAt  time.Duration
	sampled  instant // before the request that brought serverMicros was sent
	micros   int64   // the server's clock, or 0
	doubted  bool    // a later request was not answered
	rooms    map[string]*room
}

func newMaster(e *Engine, index int, client rueidis.Client) *master {
	m := &master{e: e, index: index, client: client, rooms: make(map[string]*room)}
	m.lane = newLane(m)
	m.sub = newSubscription(m)
	return m
}

// addr names the master in messages.
func (m *master) addr() string {
	return strings.Join(slices.Sorted(maps.Keys(m.client.Nodes())), ",")
}

// exec runs one script and returns at the latest when ctx ends. As long as the master answers that costs no goroutine;
// rueidis puts concurrent callers into one pipeline.
func (m *master) exec(ctx context.Context, p *program, keys, args []string) rueidis.RedisResult {
	if m.answering() || m.e.life.Err() != nil {
		r := m.do(ctx, p, keys, args)
		if r.NonRedisError() != nil {
			m.doubt()
		}
		return r
	}
	// A caller that finds no connection dials it itself, whatever its context says, and everybody else waits for that
	// dial; nor may the context of the one who dials end it for the others.
	reply := make(chan rueidis.RedisResult, 1)
	own := slices.Clone(args)
	if !m.e.spawn(func() { reply <- m.do(lasting{m.e.life, ctx}, p, keys, own) }) {
		return m.do(ctx, p, keys, args)
	}
	select {
	case r := <-reply:
		return r
	case <-ctx.Done():
		return rueidis.NewErrorResult(ctx.Err())
	}
}

func (m *master) do(ctx context.Context, p *program, keys, args []string) rueidis.RedisResult {
	if _, dated := ctx.Deadline(); dated {
		ctx = undated{ctx}
	}
	r := m.client.Do(ctx, p.byDigest(m.client.B(), keys, args))
	if unknownScript(r) {
		r = m.client.Do(ctx, p.whole(m.client.B(), keys, args))
	}
	return impartial(ctx, r)
}

// recently bounds how old the last answer of a master may be that is taken to be connected still. Within it a broken
// connection can cost a caller one dial.
const recently = 100 * time.Millisecond

func (m *master) answering() bool {
	now := m.e.clock.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.doubted && m.failures == 0 && m.micros != 0 && now.mono-m.sampled.mono < recently
}

// doubt notes that an answer did not come.
func (m *master) doubt() {
	m.mu.Lock()
	m.doubted = true
	m.mu.Unlock()
}

// lasting ends with the engine and has the values of a caller.
type lasting struct {
	context.Context
	values context.Context
}

func (l lasting) Value(key any) any { return l.values.Value(key) }

// undated hides a context's deadline and keeps its end: a client that is not pipelining would put the deadline on
// the connection and close it for every other caller when it fires.
type undated struct{ context.Context }

func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

const (
	backoffMin = 10 * time.Millisecond
	backoffMax = time.Second
)

// heard notes whether the master answered: one that fails is left alone for a while, since rueidis itself would dial
// a dead server tens of thousands of times a second.
func (m *master) heard(now time.Duration, failure error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if failure == nil {
		m.failures, m.retryAt = 0, 0
		return
	}
	if now < m.retryAt { // one broken connection fails all who were using it
		return
	}
	wait := min(backoffMin<<min(m.failures, 10), backoffMax)
	m.failures++
	m.cause = failure
	m.retryAt = now + wait/2 + rand.N(wait/2+1)
}

// resting returns why the master is left alone, and until when; nil if it is not.
func (m *master) resting(now time.Duration) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now < m.retryAt {
		return m.retryAt, m.cause
	}
	return 0, nil
}

// sample notes the server's clock, as read by a request sent at that instant.
func (m *master) sample(sent instant, micros int64) {
	m.mu.Lock()
	if micros > 0 && sent.mono >= m.sampled.mono {
		m.sampled, m.micros, m.doubted = sent, micros, false
	}
	m.mu.Unlock()
}

// forget drops the sample: after a reconnect another server may answer.
func (m *master) forget() {
	m.mu.Lock()
	m.micros, m.sampled = 0, instant{}
	m.mu.Unlock()
}

// serverAtMost returns the most that the server's clock can show now: it was at most micros when the sampled request
// was sent, and has run at most drift faster than ours since.
func (m *master) serverAtMost(now instant) (micros int64, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.micros == 0 {
		return 0, false
	}
	passed := float64(now.mono-m.sampled.mono) * (1 + float64(m.e.cfg.Drift))
	return m.micros + int64(passed/float64(time.Microsecond)) + 1, true
}

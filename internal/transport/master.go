package transport

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
)

// Config is what the masters of one locker share.
type Config struct {
	Clock      clock.Clock
	Drift      clock.Drift
	Patience   time.Duration          // how long a batch is waited for
	Quarantine time.Duration          // how long one of several masters abstains; 0: a single one
	MarkerKey  string                 // of each of several masters
	Renew      func() *Script         // the script of Renew
	Channel    string                 // where messages to this locker arrive
	Spawn      func(task func()) bool // runs the task in a goroutine that is waited for at the end; false at the end
	OnMessage  func(m *Master, text string)
	OnListen   func(m *Master)            // messages arrive from here on; what came before is lost
	OnDeaf     func(m *Master, err error) // no messages can be had
}

// Master is one Redis that decides for itself: a standalone server, a Sentinel group or a Cluster.
type Master struct {
	Index    int
	cfg      *Config
	client   rueidis.Client
	ordered  bool // the client has one connection
	health   health
	clock    serverClock
	answers  atomic.Int64 // in a row, without a failed request
	voteTail atomic.Pointer[string]
	detached sync.Pool // of *Detached
	pipeline *pipeline
	listener *listener
}

// NewMaster returns a master. Run its Run in a goroutine.
func NewMaster(cfg *Config, index int, client rueidis.Client) *Master {
	m := &Master{Index: index, cfg: cfg, client: client, clock: serverClock{drift: cfg.Drift}}
	single, ok := client.(interface{ SingleConnection() bool })
	m.ordered = ok && single.SingleConnection()
	m.pipeline = newPipeline(m)
	m.listener = &listener{m: m}
	m.SetIdentity("?") // no marker has that
	return m
}

// Addr names the master in messages.
func (m *Master) Addr() string {
	return strings.Join(slices.Sorted(maps.Keys(m.client.Nodes())), ",")
}

// Standalone reports whether the master is always one and the same server.
func (m *Master) Standalone() bool { return m.client.Mode() == rueidis.ClientModeStandalone }

// SetIdentity notes what the marker of one of several masters says that it is.
func (m *Master) SetIdentity(id string) {
	tail := " " + id + " " + strconv.FormatInt(m.cfg.Quarantine.Milliseconds(), 10) + " 0"
	m.voteTail.Store(&tail)
}

// Vote returns the first argument of every script that changes a lock: with the floor of new tokens, in microseconds,
// where several masters decide.
func (m *Master) Vote(proposal int64) string {
	if m.cfg.Quarantine == 0 {
		return "0"
	}
	return strconv.FormatInt(proposal, 10) + *m.voteTail.Load()
}

// Sample notes the server's clock, as told by the answer to a request sent at that instant.
func (m *Master) Sample(sent clock.Instant, micros int64) { m.clock.sample(sent, micros) }

// ServerAtMost returns the most that the server's clock can show now, in microseconds.
func (m *Master) ServerAtMost(now clock.Instant) (micros int64, known bool) {
	return m.clock.atMost(now)
}

// Backoff returns why background work for this master has to wait, and until when; nil if it need not.
func (m *Master) Backoff(now time.Duration) (until time.Duration, cause error) {
	return m.health.backoff(now)
}

// Listen makes messages arrive from now on. It does not wait for the connection.
func (m *Master) Listen() { m.listener.start() }

// Run sends what is posted until ctx ends; then nothing more is sent.
func (m *Master) Run(ctx context.Context) { m.pipeline.run(ctx) }

// Post sends the call with the next batch. Calls keep their order.
func (m *Master) Post(c Call) { m.pipeline.post(c) }

// Renew sends the renewal with the next batch; what expires first goes first. It is tried also while other background
// work waits for the master to come back.
func (m *Master) Renew(r *Renewal) { m.pipeline.renew(r) }

// Failing reports whether the last request to the master went without an answer.
func (m *Master) Failing() bool { return m.health.failing() }

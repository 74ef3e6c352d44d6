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
	Life       context.Context // ends when the engine gives up on the masters
	Clock      clock.Clock
	Drift      clock.Drift
	Patience   time.Duration          // how long a batch is waited for
	Silence    time.Duration          // after so long a caller that waits for an answer is told
	Quarantine time.Duration          // how long one of several masters abstains; 0: a single one
	MarkerKey  string                 // of each of several masters
	Renew      func() *Script         // the script of Renew
	Channel    string                 // where messages to this locker arrive
	Spawn      func(task func()) bool // runs the task in a goroutine that is waited for at the end; false at the end
	OnMessage  func(m *Master, text string)
	OnListen   func(m *Master)            // messages arrive from here on; what came before is lost
	OnDeaf     func(m *Master, err error) // no messages can be had
	OnSilence  func(m *Master, err error) // a caller waits, and no answer has come
}

// Master is one Redis that decides for itself: a standalone server, a Sentinel group or a Cluster.
type Master struct {
	Index    int
	cfg      *Config
	client   rueidis.Client
	tuned    tuned // nil for a client that is not from rwlock.Dial
	health   health
	clock    serverClock
	answers  atomic.Int64 // in a row, without a failed request
	identity atomic.Pointer[identity]
	detached sync.Pool // of *Detached
	pipeline *pipeline
	listener *listener
}

// NewMaster returns a master. Run its Run in a goroutine.
func NewMaster(cfg *Config, index int, client rueidis.Client) *Master {
	m := &Master{Index: index, cfg: cfg, client: client, clock: serverClock{drift: cfg.Drift}}
	m.tuned, _ = client.(tuned)
	m.pipeline = newPipeline(m)
	m.listener = &listener{m: m, tried: make(chan struct{})}
	m.SetIdentity(unknown, 0)
	return m
}

// Addr names the master in messages.
func (m *Master) Addr() string {
	return strings.Join(slices.Sorted(maps.Keys(m.client.Nodes())), ",")
}

// Standalone reports whether the master is always one and the same server.
func (m *Master) Standalone() bool { return m.client.Mode() == rueidis.ClientModeStandalone }

// tuned is what a client from rwlock.Dial tells of itself: it has one connection for calls, and has opened so many.
type tuned interface{ Dials() uint64 }

// Dials returns how many connections the client has opened, 0 where it does not tell.
func (m *Master) Dials() uint64 {
	if m.tuned == nil {
		return 0
	}
	return m.tuned.Dials()
}

// identity is what the marker of one of several masters says that it is, and over which connection that was read.
type identity struct {
	dials          uint64
	tail, stranger string
}

// unknown is the id of a master whose marker has not been read over this connection. No marker has it.
const unknown = "?"

// SetIdentity notes what the marker says, and how many connections had been opened before it was read.
func (m *Master) SetIdentity(id string, dials uint64) (changed bool) {
	rest := " " + strconv.FormatInt(m.cfg.Quarantine.Milliseconds(), 10) + " 0"
	if m.tuned == nil {
		rest = rest[:len(rest)-1] + "1" // another server may answer at any time: each script looks at its run id
	}
	now := &identity{dials, " " + id + rest, " " + unknown + rest}
	before := m.identity.Swap(now)
	return before == nil || *before != *now
}

// Vote returns the first argument of every script that changes a lock: with the floor of new tokens, in microseconds,
// where several masters decide. A master that is reached over another connection than its marker was does not vote
// before that has been read again.
func (m *Master) Vote(proposal int64) string {
	if m.cfg.Quarantine == 0 {
		return "0"
	}
	id := m.identity.Load()
	if id.dials != m.Dials() {
		return strconv.FormatInt(proposal, 10) + id.stranger
	}
	return strconv.FormatInt(proposal, 10) + id.tail
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

// Listened is closed when the first attempt to listen is over: its connection is opened by then.
func (m *Master) Listened() <-chan struct{} { return m.listener.tried }

// Run sends what is posted until the engine gives up on the masters; then nothing more is sent.
func (m *Master) Run() { m.pipeline.run(m.cfg.Life) }

// Post sends the call with the next batch. The calls of a batch keep their order; batches overtake each other.
func (m *Master) Post(c Call) { m.pipeline.post(c) }

// Renew sends the renewal with the next batch; what expires first goes first. It is tried also while other background
// work waits for the master to come back.
func (m *Master) Renew(r *Renewal) { m.pipeline.renew(r) }

// Failing reports whether the last request to the master went without an answer.
func (m *Master) Failing() bool { return m.health.failing() }

// current returns the arguments of a script as they are to go out over the connections that stand: a vote that was made
// for the connection before, and has waited since, becomes a stranger's.
func (m *Master) current(args []string, dials uint64) []string {
	id := m.identity.Load()
	if m.cfg.Quarantine == 0 || id.dials == dials || len(args) == 0 {
		return args
	}
	proposal, known := strings.CutSuffix(args[0], id.tail)
	if !known {
		return args
	}
	args = slices.Clone(args)
	args[0] = proposal + id.stranger
	return args
}

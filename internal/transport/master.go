package transport

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Config is the configuration that the masters of one locker share.
type Config struct {
	Life          context.Context // ends when the engine gives up on the masters
	Clock         clock.Clock
	Drift         clock.Drift
	BatchTimeout  time.Duration // how long to wait for the replies to a batch
	SlowCallAfter time.Duration // how long a caller waits for an answer before OnSlowCall is called
	Quarantine    time.Duration // how long one of several masters abstains; 0: a single master
	Replicas      int           // how many must confirm a replicated call; 0: calls are not replicated

	ReplicaTimeout time.Duration // how long the replicas have to confirm

	MarkerKey string                 // of each of several masters
	Renew     func(*Master) *Script  // the script of Renew
	Channel   string                 // where messages to this locker arrive
	Spawn     func(task func()) bool // runs the task in a goroutine; the engine's end waits for it; false at the end

	OnMessage         func(m *Master, from *Node, text string) // from is nil if the sending node is unknown
	OnListen          func(m *Master, n *Node)                 // messages of this node (nil: of all) arrive from here on
	OnSubscribeFailed func(m *Master, n *Node, err error)      // messages are not available; once per outage
	OnMoved           func(m *Master)                          // other servers answer for some keys, or for all
	OnFirstAnswer     func(n *Node)                            // a server has answered its first call; must not block
	OnUnread          func()                                   // calls wait until a master's marker was read again
	OnSlowCall        func(m *Master, n *Node, err error)      // a caller waits, and no answer has come
	// OnSeparated: from here on calls to this node name one lock each, because it refuses calls that name several.
	OnSeparated func(n *Node, refusal error)
}

// Master is one Redis that decides for itself: a standalone server, a Sentinel group or a Cluster. It routes each call
// by its first key to one of its nodes.
type Master struct {
	Index int
	connections
	topology
	client rueidis.Client
	home   *Node
	alarms sync.Pool // of *alarm
}

// NewMaster returns a master. The caller has to call Run in a goroutine.
func NewMaster(cfg *Config, index int, client rueidis.Client) *Master {
	m := &Master{Index: index, client: client, connections: connections{cfg: cfg}}
	m.topology.m, m.doubt, m.watched = m, make(chan struct{}, 1), m.Addr()
	m.tuned, _ = client.(connected)
	m.home = m.newNode("", nil)
	m.identify(wire.SeenNone, 0)
	return m
}

// SetIdentity stores the id from the marker, and the number of connections that had been opened before the marker was
// read. Calls that waited for that leave.
func (m *Master) SetIdentity(id string, dials uint64) (changed bool) {
	changed = m.identify(id, dials)
	m.home.wake()
	return changed
}

// Disown makes this client a stranger to the master. dials is the number of connections that the client had opened when
// it read the marker.
func (m *Master) Disown(dials uint64) (changed bool) { return m.SetIdentity(wire.SeenNone, dials) }

// Addr returns the addresses of the servers, for messages.
func (m *Master) Addr() string {
	return strings.Join(slices.Sorted(maps.Keys(m.client.Nodes())), ",")
}

// Standalone reports whether the master is always the same server.
func (m *Master) Standalone() bool { return m.client.Mode() == rueidis.ClientModeStandalone }

func (m *Master) cluster() bool { return m.client.Mode() == rueidis.ClientModeCluster }

// At returns the node that answers for this key, as far as is known.
func (m *Master) At(key string) *Node {
	slots := m.slots.Load()
	if slots == nil {
		return m.home
	}
	if !m.used.Load() {
		m.used.Store(true)
	}
	if n := slots.owner(slotOf(key)); n != nil {
		return n
	}
	return m.home
}

// Replaced reports whether a server other than this node may answer for the key now.
func (m *Master) Replaced(n *Node, key string) bool { return !n.direct || m.At(key) != n }

// Sample records the server's clock from the answer to a request for this key. The request was sent at that instant.
func (m *Master) Sample(key string, sent clock.Instant, micros int64) {
	m.At(key).clock.sample(sent, micros)
}

// EstimateServerTime estimates the time, in microseconds, that the clock of the key's server shows when a request that
// is sent now reaches it.
func (m *Master) EstimateServerTime(key string, now clock.Instant) (micros int64, known bool) {
	return m.At(key).clock.estimate(now)
}

// MaxServerTime returns the largest time, in microseconds, that the clock of the key's server can show now. It is known
// only if a message that arrived from the node, and that names process as its sender, came from that server itself,
// because replicas forward messages.
func (m *Master) MaxServerTime(key string, from *Node, process string, now clock.Instant) (micros int64, known bool) {
	n := m.At(key)
	if n != from || !n.listener.isFromServer(process) {
		return 0, false
	}
	return n.clock.upperBound(now)
}

// Run sends the posted calls until the engine gives up on the masters. After that nothing is sent.
func (m *Master) Run() {
	if !m.Standalone() {
		m.cfg.Spawn(m.watch)
	}
	m.home.run()
}

// Post sends the call with the next batch to the node of its first key. The calls of a batch keep their order. Batches
// may overtake each other.
func (m *Master) Post(c Call) {
	for !m.At(c.Keys[0]).post(c) {
	}
}

// Withdraw removes the request for a hold, and reports whether it had not left: then it never does.
func (m *Master) Withdraw(lock, hold string) bool {
	return m.withdraw(lock, func(c Call) bool { return c.Hold == hold })
}

func (m *Master) withdraw(key string, is func(Call) bool) bool {
	n := m.At(key)
	return n.pipeline.withdraw(is) || n.replicated != nil && n.replicated.withdraw(is)
}

// PostAll is Post for several calls, which are all replicated or all not. Those of one node leave together, so that
// they are one write and one round trip, unless they are more than a batch has.
func (m *Master) PostAll(calls []Call) {
	for len(calls) > 0 {
		n := m.At(calls[0].Keys[0])
		together, others := make([]Call, 0, len(calls)), []Call(nil)
		for _, c := range calls {
			if m.At(c.Keys[0]) == n {
				together = append(together, c)
			} else {
				others = append(others, c)
			}
		}
		if n.post(together...) {
			calls = others
		}
	}
}

// Renew sends the renewal with the next batch to its node, the earliest expiry first. It is tried even while other
// background work waits for the server to come back.
func (m *Master) Renew(r *Renewal) {
	for !m.At(r.Key.LockHash()).renew(r) {
	}
}

package transport

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Config is the configuration that the masters of one locker share.
type Config struct {
	Listening     context.Context // ends when the engine begins to end: messages are of no use any more
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
	Index      int
	Standalone bool // always the same server
	cluster    bool
	connections
	topology
	client rueidis.Client
	home   *Node
	alarms sync.Pool // of *alarm
}

// NewMaster returns a master. The caller has to call Run in a goroutine.
func NewMaster(cfg *Config, index int, client rueidis.Client) *Master {
	m := &Master{
		Index: index, client: client, connections: connections{cfg: cfg},
		Standalone: client.Mode() == rueidis.ClientModeStandalone, cluster: client.Mode() == rueidis.ClientModeCluster,
	}
	m.topology.m, m.doubt, m.watched = m, make(chan struct{}, 1), m.Addr()
	if m.connected, m.tuned = client.(connected); !m.tuned {
		m.connected = uncounted{closes: m.Standalone}
	}
	m.home = newNode(m, "", nil)
	m.identify(wire.SeenNone, 0)
	return m
}

// SetIdentity stores the id from the marker, and the number of connections that had been opened before the marker was
// read. Calls that waited for that leave.
func (m *Master) SetIdentity(id string, dials uint64) (changed bool) {
	changed = m.identify(id, dials)
	m.home.pipeline.sendAgain(nil)
	m.home.replicated.sendAgain(nil)
	return changed
}

// Disown makes this client a stranger to the master. dials is the number of connections that the client had opened when
// it read the marker.
func (m *Master) Disown(dials uint64) (changed bool) { return m.SetIdentity(wire.SeenNone, dials) }

// Addr returns the addresses of the servers, for messages.
func (m *Master) Addr() string {
	return strings.Join(slices.Sorted(maps.Keys(m.client.Nodes())), ",")
}

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

// estimate returns the time that the server's clock shows when a request that is sent now reaches it. It assumes that
// the request takes as long as the request of the sample, at whose arrival the clock showed micros. Unlike upperBound
// it is an estimate, and too small after this machine was suspended.
func (s *serverClock) estimate(now clock.Instant) (micros int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.micros + max(now.Mono-s.sent.Mono, 0).Microseconds(), s.micros != 0
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

// upperBound returns the largest time that the server's clock can show now. The clock showed at most micros when the
// request was sent. Since then it has run at most drift faster than whichever clock of this machine advanced further:
// the monotonic clock stands still in a suspended machine, and the wall clock may be set. For a moment before that
// request, micros is the bound.
func (s *serverClock) upperBound(now clock.Instant) (micros int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.micros == 0 {
		return 0, false
	}
	return s.micros + s.drift.Stretch(max(now.AtMostSince(s.sent), 0)).Microseconds() + 1, true
}

// Run sends the posted calls until the engine gives up on the masters. After that nothing is sent.
func (m *Master) Run() {
	switch { // the servers that answer are tracked, if they can change
	case m.cluster:
		m.cfg.Spawn(m.watchSlots)
	case !m.Standalone:
		m.cfg.Spawn(m.watchAddress)
	}
	m.home.run()
}

// Post sends the call with the next batch to the node of its first key. The calls of a batch keep their order. Batches
// may overtake each other.
func (m *Master) Post(c Call) {
	for !m.At(c.Keys[0]).of(c.Replicated).post(c) {
	}
}

// Withdraw removes the request for a hold, and reports whether it had not left: then it never does.
func (m *Master) Withdraw(lock, hold string) bool {
	return m.withdraw(lock, func(c *Call) bool { return c.Hold == hold })
}

func (m *Master) withdraw(key string, is func(*Call) bool) bool {
	n := m.At(key)
	return n.pipeline.withdraw(is) || n.replicated != n.pipeline && n.replicated.withdraw(is)
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
		if n.of(together[0].Replicated).post(together...) {
			calls = others
		}
	}
}

// Renew sends the renewal with the next batch to its node, the earliest expiry first. It is tried even while work that
// nobody waits for is put off. It moves a deadline, so it counts only once the replicas have it.
func (m *Master) Renew(r *Renewal) {
	for !m.At(r.Key).replicated.renew(r) {
	}
}

// Timed is a context that ends after its own time, independent of the caller's context, whose values it keeps. It
// shows no deadline. Each Timed is used for one call, because a callee may use its context after it has returned, as
// the timer of a dial's child context does. Only the alarm is reused: no callee sees it, and a new one would cost two
// allocations.
type Timed struct {
	context.Context // for its values
	over            chan struct{}
	alarm           *alarm // nil once stopped
}

// alarm is a timer that successive Timed contexts reuse.
type alarm struct {
	timer *time.Timer
	ends  *Timed
	free  *sync.Pool // the pool that takes the alarm back if it has not fired
}

func (a *alarm) ring() { close(a.ends.over) }

// Timed starts the timer. Call Stop when the context is no longer needed.
func (m *Master) Timed(values context.Context, d time.Duration) *Timed {
	a, _ := m.alarms.Get().(*alarm)
	if a == nil {
		a = &alarm{free: &m.alarms}
		a.timer = time.AfterFunc(clock.Never, a.ring)
	}
	a.ends = &Timed{Context: values, over: make(chan struct{}), alarm: a}
	a.timer.Reset(d)
	return a.ends
}

// Stop frees the timer. A context that has not ended by then never ends, and keeps its values.
func (c *Timed) Stop() {
	a := c.alarm
	c.alarm = nil
	if a != nil && a.timer.Stop() {
		a.ends = nil
		a.free.Put(a)
	}
}

// Deadline returns no deadline. The package documentation gives the reason.
func (c *Timed) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *Timed) Done() <-chan struct{} { return c.over }

func (c *Timed) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Listen starts to receive the messages of the key's node. It does not wait for the connection. If the nodes of a
// Cluster are unknown it has no effect, and has to be called again when OnMoved is called.
func (m *Master) Listen(key string) {
	if l := m.listenerOf(key); l != nil {
		l.once.Do(func() { m.cfg.Spawn(func() { l.supervise(l.n.life) }) })
	}
}

// Listened is closed when the first attempt to listen is over. Its connection has been dialled by then.
func (m *Master) Listened() <-chan struct{} { return m.home.listener.tried }

// Route returns how messages about this key reach this process. The route is uncounted before the first waiter's
// subscription stands, and if messages are not available.
func (m *Master) Route(key string) wire.Route {
	l := m.home.listener
	if m.cluster {
		l = cmp.Or(m.listenerOf(key), l)
	}
	return l.state.Load().route
}

// SubscriptionDown reports whether messages about this key are not available.
func (m *Master) SubscriptionDown(key string) bool {
	l := m.listenerOf(key)
	return l != nil && l.state.Load().down
}

// listenerOf returns nil if the node to listen to is not known so far.
func (m *Master) listenerOf(key string) *listener {
	switch {
	case m.plain.Load() || !m.cluster:
		return m.home.listener
	case m.slots.Load() == nil:
		return nil
	}
	if n := m.At(key); n.direct {
		return n.listener
	}
	return m.home.listener // only the client can route to that server
}

// Prepare opens the connection for replicated calls, at the latest when ctx ends. If the first of these calls opened
// it, one of several masters would not vote, because its marker was not read over the current connection.
func (m *Master) Prepare(ctx context.Context) {
	if m.cfg.Replicas > 0 {
		m.client.Do(withoutDeadline{ctx}, m.client.B().Wait().Numreplicas(0).Timeout(1).Build())
	}
}

func (m *Master) notSent(cause error) *NotSent { return &NotSent{cause, m.Permanent(cause)} }

// Permanent reports whether asking this master again is useless.
func (m *Master) Permanent(err error) bool {
	switch kindOf(err) {
	case notRefused:
		text := err.Error()
		return m.isClosed(err) || errors.Is(err, wire.ErrCounter) ||
			strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS")
	case crossSlot: // calls of several locks have been sent again as calls of one lock
		return true
	case denied, rejected:
		return true
	case moved, ask, migrating, clusterDown:
		// A client of the cluster follows MOVED and ASK, and the remaining refusals pass. A client of a single server
		// does not follow them.
		return m.Standalone
	case readOnly:
		// Behind Sentinel or in a Cluster a read-only answer is a failover that the client has not followed so far. So it
		// is where an address leads to another server than before: see LeaveReplica. A client that is not from Dial stays
		// with the replica.
		return m.Standalone && !m.tuned
	default:
		return false
	}
}

// isClosed reports whether a request failed since the master's client was closed, which is final. That of a Sentinel
// group or a Cluster fails so also while it changes servers, so it has to say that it was closed.
func (m *Master) isClosed(err error) bool {
	return errors.Is(err, rueidis.ErrClosing) && m.Closed()
}

// Explain returns the failure of a request to this master in the form that is reported to a user.
func (m *Master) Explain(err error) error {
	switch {
	case m.isClosed(err):
		return &Advised{err, closedAdvice}
	case m.Standalone && FromCluster(err):
		return &Advised{err, ClusterAdvice}
	case m.cfg.Quarantine > 0 && kindOf(err) == crossSlot:
		return &Advised{err, slotsAdvice}
	case lacksScripts(err):
		return &Advised{err, scriptsAdvice}
	case kindOf(err) == readOnly:
		return &Advised{err, replicaAdvice}
	default:
		return err
	}
}

// lacksScripts reports whether the server does not know the commands that run scripts, or denies them to the user.
func lacksScripts(err error) bool {
	refusal, ok := refusalOf(err)
	if !ok {
		return false
	}
	text := strings.ToLower(refusal.Error())
	denied := strings.HasPrefix(text, "unknown command") || strings.HasPrefix(text, "noperm")
	return denied && strings.Contains(text, "'eval")
}

// connections holds what a master's client reports of its connections, and the identity of the master that they lead
// to.
type connections struct {
	connected
	cfg      *Config
	tuned    bool // the client counts its connections
	identity atomic.Pointer[identity]
	unread   atomic.Pointer[unread]
}

// uncounted is of a client that does not count its connections.
type uncounted struct{ closes bool }

func (uncounted) Dials() uint64 { return 0 }

func (uncounted) OtherDials() uint64 { return 0 }

func (uncounted) ForMessages(dedicate func()) { dedicate() }

// Leave has no effect: only a client from Dial knows its connections.
func (uncounted) Leave(error) {}

// SendsAgain is true where nothing is known of the client's options.
func (uncounted) SendsAgain() bool { return true }

func (uncounted) NextDial() <-chan struct{} { return nil }

// Closed reports whether a connection that is closed says that the client was closed.
func (u uncounted) Closed() bool { return u.closes }

// identity is the vote with the id that the marker of one of several masters states, and the connection over which the
// marker was read.
type identity struct {
	dials uint64
	vote  wire.Vote // without a proposal
}

// identify reports whether the id or the connection is another one than before.
func (c *connections) identify(id string, dials uint64) (changed bool) {
	now := &identity{dials, wire.Vote{
		Seen: id, Quarantine: wire.FormatMillis(c.cfg.Quarantine),
		Check: !c.tuned, // another server may answer at any time: each script checks its run id
	}}
	before := c.identity.Swap(now)
	return before == nil || *before != *now
}

// Identified reports whether the marker of the master has been read over the current connection. It is always true for
// a single master.
func (c *connections) Identified() bool {
	id := c.identity.Load()
	return c.cfg.Quarantine == 0 || id.dials == c.Dials() && id.vote.Seen != wire.SeenNone
}

// Vote returns the vote to send with a script. With several masters it contains the token floor, in microseconds. If
// the connection to a master was opened after the marker was read, the master does not vote until the marker has been
// read again.
func (c *connections) Vote(proposal int64) wire.Vote {
	if c.cfg.Quarantine == 0 {
		return wire.Vote{}
	}
	id := c.identity.Load()
	vote := id.vote
	vote.Proposal = proposal
	if id.dials != c.Dials() {
		vote.Seen = wire.SeenNone
	}
	return vote
}

// current adjusts the vote for one of several masters to the connections that are open now. If it was made for an
// earlier connection and has waited since, it becomes that of a client that has not seen the marker. That of such a
// client names the marker if that was read meanwhile.
func (c *connections) current(vote wire.Vote, dials uint64) wire.Vote {
	id := c.identity.Load()
	switch {
	case id.dials == dials && vote.Seen == wire.SeenNone:
		vote.Seen = id.vote.Seen
	case id.dials != dials && vote.Seen == id.vote.Seen:
		vote.Seen = wire.SeenNone
	}
	return vote
}

// unread says until when calls wait for the marker after so many connections had been opened.
type unread struct {
	dials uint64
	until time.Duration
}

// untilRead returns for how long calls wait now, because the connection to one of several masters was opened after its
// marker was read: the master would refuse them. For each connection they wait once, within the node timeout.
func (c *connections) untilRead(now time.Duration) time.Duration {
	dials := c.Dials()
	if c.identity.Load().dials == dials {
		return 0
	}
	wait := c.unread.Load()
	if wait == nil || wait.dials != dials {
		wait = &unread{dials, now + c.cfg.SlowCallAfter}
		c.unread.Store(wait)
	}
	return max(wait.until-now, 0)
}

// The answers of one of several masters after which its marker has to be read before the next request.
var (
	// The request may have gone over a different connection than its vote was made for, and so to another server.
	errReconnected = errors.New("connection replaced during the request")
	// A renewal by a client that has not read the current marker.
	errStaleMarker = errors.New("marker changed; reading it again")
)

// StaleMarker reports whether err is such an answer.
func StaleMarker(err error) bool {
	return errors.Is(err, errReconnected) || errors.Is(err, errStaleMarker)
}

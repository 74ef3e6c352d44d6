package rwlock

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/settings"
)

// Dial returns a client tuned for locks over base, whose other fields are kept: commands of all callers in one
// pipeline and over one connection, in order, so that a release never overtakes the acquire that it ends; a server
// that hangs is noticed within seconds; no client-side cache, small buffers. Dial connects, for at most
// base.Dialer.Timeout per address, one second by default.
//
// A connection over which something was sent and nothing comes back is replaced: after a quarter of the shortest TTL
// that is asked for, or three times what answers take if that is more, and after 3 s at the latest. An idle connection
// sends a PING every second, or more often where base.Dialer.KeepAlive says so. The client is not for commands that
// block, such as BLPOP: they would break their connection.
//
// addr is that of one server, and takes the place of base.InitAddress. Leave it empty for Sentinel and Cluster, and
// name them in base: one node of a Cluster is enough in base.InitAddress; for Sentinel name the sentinels there and the
// master in base.Sentinel. A node of a Cluster or a sentinel as addr is refused with an *OptionError, and so are
// options by which a client would ask replicas, or other servers than addr, and servers in base.InitAddress that are
// neither a Cluster nor sentinels.
//
// Where a server at addr does not answer, Dial returns a *QuorumError and a client that connects once it does: use it,
// or close it. With every other error the client is nil, and without addr always: without a node that answers, a client
// of a Cluster or of sentinels does not know where to connect to.
func Dial(addr string, base rueidis.ClientOption) (rueidis.Client, error) {
	if option, value, rule := settings.BaseRule(addr != "", base); rule != "" {
		return nil, &OptionError{option, value, rule}
	}
	switch {
	case addr == "" && len(base.InitAddress) == 0:
		return nil, &OptionError{"Dial", addr, "neither addr nor base.InitAddress names a server"}
	case addr != "":
		if rule := settings.AddressRule(addr, base); rule != "" {
			return nil, &OptionError{"Dial", addr, rule}
		}
		base.InitAddress = []string{addr}
		base.ForceSingleClient = true
	}
	dials := &dials{next: make(chan struct{})}
	option := tuned(base)
	client, err := rueidis.NewClient(dials.counting(option))
	if client != nil && err == nil {
		if err = misdirected(client, base.InitAddress[0], option.Dialer.Timeout); err != nil {
			client.Close()
			return nil, err
		}
	}
	if client == nil {
		if err := misnamed(base.InitAddress, err); err != nil {
			return nil, err
		}
	}
	if err != nil {
		err = &QuorumError{Need: 1, Nodes: []NodeError{{Addr: strings.Join(base.InitAddress, ","), Err: err}}}
	}
	if client == nil {
		return nil, err
	}
	return &tunedClient{Client: client, dials: dials}, err
}

// tunedClient tells the locker what it cannot read off a client: that calls share one connection, and when that one was
// replaced, since another server may answer then. The locker finds these methods by an interface, so a client that is
// wrapped by its user loses them and is taken for any other.
type tunedClient struct {
	rueidis.Client
	*dials
	closed atomic.Bool
}

// Close ends the client. Lockers that use it cannot work any more, and who waits is told.
func (c *tunedClient) Close() {
	c.closed.Store(true)
	c.Client.Close()
}

// Closed tells the locker that it was not the client itself that has given up a connection.
func (c *tunedClient) Closed() bool { return c.closed.Load() }

// topologyRefresh is how often a sentinel is asked for the master. Its message may come late: the one that leads a
// failover names the new master to who asks, and tells the others, a second or more before it sends its own message.
// While some clients have gone over and others not, each side waits for what the other one holds.
const topologyRefresh = 500 * time.Millisecond

// tuned sets what a lock needs. A user's own values stand where they do not change what is promised.
func tuned(o rueidis.ClientOption) rueidis.ClientOption {
	o.AlwaysPipelining = true // else a context that ends closes the connection for every caller
	o.PipelineMultiplex = -1  // one connection: else a release may overtake its acquire
	o.DisableCache = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = time.Second // callers share a dial: its timeout is everybody's
	}
	o.Dialer.KeepAlive = pingInterval(o.Dialer.KeepAlive)
	if o.Sentinel.Dialer.Timeout == 0 { // without one it is as long as the system's
		o.Sentinel.Dialer.Timeout = o.Dialer.Timeout
	}
	o.Sentinel.Dialer.KeepAlive = pingInterval(o.Sentinel.Dialer.KeepAlive)
	if o.Sentinel.TopologyRefreshInterval == 0 { // else one missed message binds the client to the old master for good
		o.Sentinel.TopologyRefreshInterval = topologyRefresh
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = 3 * time.Second
	}
	if o.RingScaleEachConn == 0 {
		o.RingScaleEachConn = 11 // a full ring blocks callers past their contexts
	}
	if o.ReadBufferEachConn == 0 {
		o.ReadBufferEachConn = 16 << 10
	}
	if o.WriteBufferEachConn == 0 {
		o.WriteBufferEachConn = 16 << 10
	}
	return o
}

// pingInterval bounds how long the client leaves a connection idle before it sends a PING. A connection for messages
// sends nothing else.
func pingInterval(d time.Duration) time.Duration {
	if d <= 0 || d > time.Second {
		return time.Second
	}
	return d
}

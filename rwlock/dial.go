package rwlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/settings"
)

// Dial returns a client that is tuned for locks; the other fields of base are kept. All callers send their commands in
// one pipeline over one connection, in order, so a release never overtakes the acquire that it ends. A server that
// hangs is noticed within seconds. There is no client-side cache, and buffers are small. Dial connects, and waits at
// most base.Dialer.Timeout per address, one second by default.
//
// A connection is replaced if something was sent over it and no answer arrives for 2 s, or up to 3 s where answers are
// slow. An idle connection sends a PING every second, or more often if base.Dialer.KeepAlive is shorter. Do not use the
// client for commands that block, such as BLPOP: they would break their connection.
//
// addr is the address of one server, and replaces base.InitAddress. For Sentinel and Cluster leave it empty and use
// base: one node of a Cluster is enough in base.InitAddress; for Sentinel put the sentinels there and the master in
// base.Sentinel. Dial refuses the following with an *OptionError: a node of a Cluster or a sentinel as addr, options
// that would send requests to replicas or to servers other than addr, and servers in base.InitAddress that are neither
// a Cluster nor sentinels.
//
// If the server at addr does not answer, or refuses the connection, for example because of a wrong password, the client
// connects once the server accepts it. Until then its calls fail with the cause. Without addr at least one node has to
// answer, because a client of a Cluster or of sentinels does not know where to connect otherwise: the error is a
// *QuorumError with the cause. With every error the client is nil.
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
	if client == nil {
		if err := wrongAddresses(base.InitAddress, err); err != nil {
			return nil, err
		}
		cause := namingLimit(err, option)
		return nil, &QuorumError{Need: 1, Nodes: []NodeError{{Addr: strings.Join(base.InitAddress, ","), Err: cause}}}
	}
	if err == nil {
		if err = wrongServer(client, base.InitAddress[0], option.Dialer.Timeout); err != nil {
			client.Close()
			return nil, err
		}
	}
	return &tunedClient{Client: client, dials: dials}, nil
}

// namingLimit returns the reason why the client has no connection. The error of a dial that took too long does not name
// its limit.
func namingLimit(err error, o rueidis.ClientOption) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	limit, option := o.Dialer.Timeout, "base.Dialer.Timeout"
	if o.Sentinel.MasterSet != "" && o.Sentinel.Dialer.Timeout != limit {
		limit, option = max(limit, o.Sentinel.Dialer.Timeout), option+" and base.Sentinel.Dialer.Timeout"
	}
	return fmt.Errorf("%w, the limit of %s", &NoReplyError{After: limit}, option)
}

// tunedClient reports two facts that the locker cannot read from a client: that all calls share one connection, and
// when that connection was replaced, because another server may answer then. The locker finds these methods through an
// interface. A client around this one hides the methods and counts as any other client, unless Wrap has made it.
type tunedClient struct {
	rueidis.Client
	*dials
	closed atomic.Bool
}

// Close ends the client. Lockers that use it cannot work any more, and their waiting acquisitions fail.
func (c *tunedClient) Close() {
	c.closed.Store(true)
	c.Client.Close()
}

// Closed reports whether Close was called: the locker distinguishes this from a connection that the client gave up.
func (c *tunedClient) Closed() bool { return c.closed.Load() }

// Wrap returns a client that sends everything through with(client), such as a client of rueidishook or rueidisotel, and
// is as tuned for locks as client, which must be from Dial or redlock.Dial. To close it is to close both. An argument
// that breaks a rule, or a nil client from with, is an *OptionError, and client stays as it was.
//
// What with adds runs on the goroutines that send and renew. While it blocks, locks wait and leases are not renewed, so
// it must be quick and must not call the locker. It must send each command once, unchanged and in order, over client.
func Wrap(client rueidis.Client, with func(rueidis.Client) rueidis.Client) (rueidis.Client, error) {
	inner, ok := client.(connected)
	if !ok {
		return nil, &OptionError{"client", fmt.Sprintf("%T", client), "must be from Dial"}
	}
	if with == nil {
		return nil, &OptionError{"with", "nil", "must be a function"}
	}
	outer := with(client)
	if outer == nil {
		return nil, &OptionError{"with", "nil client", "must return a client"}
	}
	return &wrappedClient{outer, inner}, nil
}

// connected is what a tuned client reports of its connections.
type connected interface {
	Dials() uint64
	LastDials() (newest, call string, next <-chan struct{})
	Closed() bool
}

type wrappedClient struct {
	rueidis.Client
	connected
}

// topologyRefresh is the interval at which the client asks a sentinel for the master. A sentinel's message may come
// late: the sentinel that leads a failover names the new master to clients that ask, and to the other sentinels, a
// second or more before it sends its own message. While some clients have switched to the new master and others have
// not, the clients on each side wait for locks that are held on the other side.
const topologyRefresh = 500 * time.Millisecond

// tuned sets the options that a lock needs. It keeps a user's own values if they do not break what Dial promises.
func tuned(o rueidis.ClientOption) rueidis.ClientOption {
	o.AlwaysPipelining = true // otherwise a context that ends closes the connection for every caller
	o.PipelineMultiplex = -1  // one connection: otherwise a release may overtake its acquire
	o.DisableCache = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = time.Second // all callers share a dial and its timeout
	}
	o.Dialer.KeepAlive = pingInterval(o.Dialer.KeepAlive)
	if o.Sentinel.Dialer.Timeout == 0 { // without a timeout the system's applies
		o.Sentinel.Dialer.Timeout = o.Dialer.Timeout
	}
	o.Sentinel.Dialer.KeepAlive = pingInterval(o.Sentinel.Dialer.KeepAlive)
	if o.Sentinel.TopologyRefreshInterval == 0 { // otherwise one missed message leaves the client at the old master
		o.Sentinel.TopologyRefreshInterval = topologyRefresh
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = 3 * time.Second
	}
	if o.RingScaleEachConn == 0 {
		o.RingScaleEachConn = 11 // a full ring blocks callers beyond the end of their contexts
	}
	if o.ReadBufferEachConn == 0 {
		o.ReadBufferEachConn = 16 << 10
	}
	if o.WriteBufferEachConn == 0 {
		o.WriteBufferEachConn = 16 << 10
	}
	return o
}

// pingInterval bounds how long a connection stays idle before the client sends a PING. A connection for messages sends
// nothing else.
func pingInterval(d time.Duration) time.Duration {
	if d <= 0 || d > time.Second {
		return time.Second
	}
	return d
}

// wrongServer returns the reason why the client must not be used: its one server does not decide alone. It returns nil
// also if the server does not report its mode: a proxy, a user without the right to HELLO, a server that is down. The
// check only reports early what Redis itself would refuse later; nothing depends on it.
func wrongServer(client rueidis.Client, addr string, limit time.Duration) error {
	if client.Mode() != rueidis.ClientModeStandalone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	told, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		return nil
	}
	mode := told["mode"]
	switch kind, _ := mode.ToString(); kind {
	case "cluster":
		return &OptionError{"addr", addr, "is a node of a Cluster: leave addr empty and name the node in base.InitAddress, " +
			"with a user that may run CLUSTER SLOTS and CLUSTER SHARDS"}
	case "sentinel":
		return &OptionError{"addr", addr, "is a sentinel: leave addr empty, name the sentinels in base.InitAddress and the " +
			"master that they watch in base.Sentinel.MasterSet"}
	default:
		return nil
	}
}

// wrongAddresses returns the reason why no client without an own address is possible, if a refusal shows that the
// servers in the options are of another kind. It returns nil for any other error.
func wrongAddresses(addrs []string, err error) error {
	refusal, ok := errors.AsType[*rueidis.RedisError](err)
	if !ok {
		return nil
	}
	refused := func(rule string) error { return &OptionError{"base.InitAddress", addrs, rule} }
	switch text := strings.ToLower(refusal.Error()); {
	case strings.Contains(text, "cluster support disabled"):
		return refused("names servers that are no Cluster: give one server as the address of Dial, and several that are " +
			"to decide together to redlock.Dial")
	case strings.Contains(text, "unknown command 'cluster'"):
		return refused("names servers that are no Cluster: for sentinels name the master that they watch in " +
			"base.Sentinel.MasterSet")
	case strings.Contains(text, "unknown command 'sentinel'"):
		return refused("names servers that are no sentinels: leave base.Sentinel.MasterSet empty")
	default:
		return nil
	}
}

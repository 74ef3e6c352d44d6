package transport

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// connected is what a client that is tuned for locks reports. All its calls to a server share one connection, and
// another server may answer when that was replaced. A client around it hides these methods, and counts as any other
// client, unless Wrap has made it.
type connected interface {
	Dials() uint64
	OtherDials() uint64
	ForMessages(dedicate func())
	NextDial() <-chan struct{}
	Leave(cause error)
	Closed() bool
	SendsAgain() bool
}

func IsTuned(client rueidis.Client) bool {
	_, is := client.(connected)
	return is
}

// Wrap returns outer, which sends over a tuned client, as a client that is as tuned.
func Wrap(client, outer rueidis.Client) rueidis.Client {
	return &wrappedClient{outer, client.(connected)}
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

// Tuned sets the options that a lock needs. It keeps a user's own values if they do not break what Dial promises.
func Tuned(o rueidis.ClientOption) rueidis.ClientOption {
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

// ServerRule returns why the client must not be used: its one server does not decide alone. It returns "" also if the
// server does not report its mode: a proxy, a user without the right to HELLO, a server that is down. The check only
// reports early what Redis itself would refuse later; nothing depends on it.
func ServerRule(client rueidis.Client, limit time.Duration) string {
	if client.Mode() != rueidis.ClientModeStandalone {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	told, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		return ""
	}
	mode := told["mode"]
	switch kind, _ := mode.ToString(); kind {
	case "cluster":
		return "is a node of a Cluster: leave addr empty and name the node in base.InitAddress, " +
			"with a user that may run CLUSTER SLOTS and CLUSTER SHARDS"
	case "sentinel":
		return "is a sentinel: leave addr empty, name the sentinels in base.InitAddress and the " +
			"master that they watch in base.Sentinel.MasterSet"
	default:
		return ""
	}
}

// AddressesRule returns why no client without an own address is possible, if a refusal shows that the servers in the
// options are of another kind. It returns "" for any other error.
func AddressesRule(err error) string {
	refusal, ok := errors.AsType[*rueidis.RedisError](err)
	if !ok {
		return ""
	}
	switch text := strings.ToLower(refusal.Error()); {
	case strings.Contains(text, "cluster support disabled"):
		return "names servers that are no Cluster: give one server as the address of Dial, and several that are " +
			"to decide together to redlock.Dial"
	case strings.Contains(text, "unknown command 'cluster'"):
		return "names servers that are no Cluster: for sentinels name the master that they watch in " +
			"base.Sentinel.MasterSet"
	case strings.Contains(text, "unknown command 'sentinel'"):
		return "names servers that are no sentinels: leave base.Sentinel.MasterSet empty"
	default:
		return ""
	}
}

// BaseRule returns the first field of the client options that rules out locks, with its value and the rule that it
// breaks. The rule is "" if there is none.
func BaseRule(oneServer bool, base rueidis.ClientOption) (option string, value any, rule string) {
	const beside = "beside the address of one server"
	switch sentinel, standalone := base.Sentinel, base.Standalone; {
	case base.ReplicaOnly:
		return "base.ReplicaOnly", true, "must be false: a replica grants nothing"
	case len(standalone.ReplicaAddress) > 0:
		return "base.Standalone.ReplicaAddress", standalone.ReplicaAddress, "must be empty: a replica grants nothing"
	case oneServer && sentinel.MasterSet != "":
		return "base.Sentinel.MasterSet", sentinel.MasterSet, "must be empty " + beside +
			"; for Sentinel leave that empty, and name the sentinels in base.InitAddress"
	case oneServer && standalone.EnableRedirect:
		return "base.Standalone.EnableRedirect", true, "must be false " + beside + ", which is the one that grants"
	default:
		return "", nil, ""
	}
}

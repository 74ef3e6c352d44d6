package rwlock

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Dial returns a client tuned for locks over base, whose other fields are kept: commands of all callers in one
// pipeline and over one connection, in order, so that a release never overtakes the acquire that it ends; a server
// that hangs is noticed within seconds; no client-side cache, small buffers. addr replaces base.InitAddress; leave it
// empty for Sentinel and Cluster and name their addresses in base. Dial connects, for at most base.Dialer.Timeout, one
// second by default. Where addr does not answer it returns an error and a client that connects once it does: use it,
// or close it.
func Dial(addr string, base rueidis.ClientOption) (rueidis.Client, error) {
	if addr != "" {
		base.InitAddress = []string{addr}
		base.ForceSingleClient = true
	}
	dials := &dials{next: make(chan struct{})}
	client, err := rueidis.NewClient(dials.counting(tuned(base)))
	if err != nil {
		err = fmt.Errorf("rwlock: dial %s: %w", strings.Join(base.InitAddress, ","), err)
	}
	if client == nil {
		return nil, err
	}
	return &tunedClient{client, dials}, err
}

// tunedClient tells the locker what it cannot read off a client: that calls share one connection, and when that one was
// replaced, since another server may answer then.
type tunedClient struct {
	rueidis.Client
	*dials
}

// tuned sets what a lock needs. A user's own values stand where they do not change what is promised.
func tuned(o rueidis.ClientOption) rueidis.ClientOption {
	o.AlwaysPipelining = true // else a context that ends closes the connection for every caller
	o.PipelineMultiplex = -1  // one connection: else a release may overtake its acquire
	o.DisableCache = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = time.Second // callers share a dial: its timeout is everybody's
	}
	if o.Dialer.KeepAlive == 0 {
		o.Dialer.KeepAlive = time.Second
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

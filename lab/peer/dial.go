package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/rwlock"
)

// dial connects to every master as fencelock's own clients do, so that no library has a better client than another.
func dial(o Options) ([]rueidis.Client, error) {
	var clients []rueidis.Client
	option := o.option()
	addrs := o.Addrs
	if len(addrs) == 0 {
		addrs = []string{""}
	}
	for _, addr := range addrs {
		dialOne := rwlock.Dial
		if o.Automatic {
			dialOne = dialAutomatic
		}
		client, err := dialOne(addr, option)
		if client != nil {
			clients = append(clients, client)
		}
		if err != nil {
			closeAll(clients)
			return nil, err
		}
	}
	return clients, nil
}

// option returns the client options of rueidis.
func (o Options) option() rueidis.ClientOption {
	option := o.At
	option.ClientName = o.ClientName
	if o.Dial != nil {
		option.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return o.Dial(ctx, addr)
		}
	}
	return option
}

// goRedis returns a client with the defaults of go-redis, but that it does not log each connection that fails.
func (o Options) goRedis(addr string) *redis.Client {
	logging.Disable()
	options := &redis.Options{Addr: addr, ClientName: o.ClientName}
	if o.Dial != nil {
		options.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) { return o.Dial(ctx, addr) }
	}
	return redis.NewClient(options)
}

// dialAutomatic is rwlock.Dial with rueidis' automatic mode: a command that is alone is written and its reply is read
// by the caller's own goroutine, unless its context can end.
func dialAutomatic(addr string, base rueidis.ClientOption) (rueidis.Client, error) {
	base = asDial(addr, base)
	base.PipelineMultiplex, base.DisableCache = -1, true
	return rueidis.NewClient(base)
}

// asDial returns what the options of rwlock.Dial have in common with those of other clients.
func asDial(addr string, base rueidis.ClientOption) rueidis.ClientOption {
	if addr != "" {
		base.InitAddress, base.ForceSingleClient = []string{addr}, true
	}
	base.Dialer.Timeout, base.Dialer.KeepAlive = time.Second, time.Second
	base.ConnWriteTimeout = 3 * time.Second
	base.RingScaleEachConn = 11
	base.ReadBufferEachConn, base.WriteBufferEachConn = 16<<10, 16<<10
	return base
}

func closeAll(clients []rueidis.Client) {
	for _, c := range clients {
		c.Close()
	}
}

var errTaken = errors.New("the name is taken")

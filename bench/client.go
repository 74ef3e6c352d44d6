package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

const (
	// ttl is of every lease except the stalled ones: a busy machine must not make the clients lose leases by accident.
	ttl            = 2 * time.Second
	nodeTimeout    = ttl / 2     // on a busy machine all masters answer late, and none is down
	releaseTimeout = time.Second // for unreachable servers at the end
	dialLimit      = time.Second // for a server to answer
)

// client has the connections and the locker that a separate process would have.
type client struct {
	id     int
	cable  cable
	conns  []rueidis.Client
	locker *rwlock.Locker
	nested *reentrant.Locker
}

func newClient(id int, addrs []string) (_ *client, err error) {
	c := &client{id: id}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	for _, addr := range addrs {
		if err := c.dial(addr); err != nil {
			return nil, fmt.Errorf("server %s: %w", addr, err)
		}
	}
	options := []rwlock.Option{
		rwlock.WithPrefix("fencelock-bench"), rwlock.WithTTL(ttl), rwlock.WithMeta(fmt.Sprintf("client %d", id)),
		rwlock.WithReleaseTimeout(releaseTimeout), rwlock.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if len(c.conns) == 1 {
		c.locker, err = rwlock.New(c.conns[0], options...)
	} else {
		c.locker, err = redlock.New(c.conns, append(options, redlock.WithNodeTimeout(nodeTimeout))...)
	}
	if err == nil {
		c.nested = reentrant.New(c.locker)
	}
	return c, err
}

func (c *client) dial(addr string) error {
	conn, err := rwlock.Dial(addr, rueidis.ClientOption{DialCtxFn: c.cable.dial})
	if err != nil {
		return err
	}
	c.conns = append(c.conns, conn)
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	if err = conn.Do(ctx, conn.B().Time().Build()).Error(); errors.Is(err, context.DeadlineExceeded) {
		err = &rwlock.NoReplyError{After: dialLimit}
	}
	return err
}

func (c *client) close() {
	if c.locker != nil {
		_ = c.locker.Close()
	}
	for _, conn := range c.conns {
		conn.Close()
	}
}

// probe takes a lock that no other client takes, to detect faults of the servers. A late answer to a release is none.
func (c *client) probe(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		lease, err := c.locker.Lock(ctx, fmt.Sprintf("probe/%d", c.id))
		if err != nil {
			return err
		}
		if err = lease.Release(ctx); !errors.Is(err, rwlock.ErrNoQuorum) || ctx.Err() != nil {
			return err
		}
	}
}

// cable is the network of one client.
type cable struct {
	mu     sync.Mutex
	pulled bool
	conns  []net.Conn
}

// dial has the shape of rueidis.ClientOption.DialCtxFn.
func (c *cable) dial(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pulled {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// pull closes every connection and refuses new ones until plug.
func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

func (c *cable) plug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled = false
}

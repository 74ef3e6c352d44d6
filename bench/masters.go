package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// masters are the servers that every client locks on.
type masters struct {
	addrs    []string
	embedded []*miniredis.Miniredis // none if the servers are external
}

// startMasters starts the embedded servers, or takes the real ones as they are.
func startMasters(c config) (*masters, error) {
	if len(c.addrs) > 0 {
		return &masters{addrs: c.addrs}, nil
	}
	m := new(masters)
	for range c.masters {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true) // else no key ever expires by itself
		if err := server.Start(); err != nil {
			m.close()
			return nil, fmt.Errorf("embedded server: %w", err)
		}
		m.embedded = append(m.embedded, server)
		m.addrs = append(m.addrs, server.Addr())
	}
	return m, nil
}

func (m *masters) close() {
	for _, server := range m.embedded {
		server.Close()
	}
}

const dialLimit = time.Second // for the servers to answer

// dial connects to every master over one link.
func (m *masters) dial(l *link) ([]rueidis.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	var all []rueidis.Client
	for _, addr := range m.addrs {
		client, err := rwlock.Dial(addr, rueidis.ClientOption{DialCtxFn: l.dial})
		if err == nil {
			all = append(all, client)
			if err = client.Do(ctx, client.B().Time().Build()).Error(); errors.Is(err, context.DeadlineExceeded) {
				err = &rwlock.NoReplyError{After: dialLimit}
			}
		}
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("server %s: %w", addr, err)
		}
	}
	return all, nil
}

func closeAll(clients []rueidis.Client) {
	for _, c := range clients {
		c.Close()
	}
}

// nodeTimeout is ten times the default for this TTL. On a busy machine all masters answer late, and none is down.
const nodeTimeout = ttl / 2

// newLocker is the only place that distinguishes a single master from a quorum.
func newLocker(clients []rueidis.Client, opts ...rwlock.Option) (*rwlock.Locker, error) {
	if len(clients) == 1 {
		return rwlock.New(clients[0], opts...)
	}
	return redlock.New(clients, append(opts, redlock.WithNodeTimeout(nodeTimeout))...)
}

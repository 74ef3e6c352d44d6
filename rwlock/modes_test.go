package rwlock_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// failingOver is a client that says of itself that it is of some mode, and sends to one of several servers, as the
// client of a Sentinel group does: to the next one from the moment of the failover.
type failingOver struct {
	rueidis.Client // the first
	mode           rueidis.ClientMode
	clients        []rueidis.Client
	addrs          []string
	now            atomic.Int64
}

// newFailingOver returns a client over links to these servers.
func newFailingOver(t testing.TB, mode rueidis.ClientMode, links ...*testredis.Link) *failingOver {
	c := &failingOver{mode: mode}
	for _, link := range links {
		c.clients = append(c.clients, link.Client(t))
		c.addrs = append(c.addrs, link.Option().InitAddress[0])
	}
	c.Client = c.clients[0]
	return c
}

func (c *failingOver) client() rueidis.Client { return c.clients[c.now.Load()] }

func (c *failingOver) Mode() rueidis.ClientMode { return c.mode }

func (c *failingOver) Nodes() map[string]rueidis.Client {
	return map[string]rueidis.Client{c.addrs[c.now.Load()]: c.client()}
}

func (c *failingOver) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return c.client().Do(ctx, cmd)
}

func (c *failingOver) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	return c.client().DoMulti(ctx, multi...)
}

func (c *failingOver) Dedicate() (rueidis.DedicatedClient, func()) { return c.client().Dedicate() }

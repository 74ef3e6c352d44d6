package locktest

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/rwlock"
)

// server is a Redis in this process. Its connections are pipes, so it works inside a bubble of testing/synctest too.
type server struct {
	redis *miniredis.Miniredis

	mu    sync.Mutex
	ahead time.Duration // of the process's clock
}

func startServer(t testing.TB) *server {
	s := &server{redis: miniredis.NewMiniRedis()}
	s.redis.ClockTTL(true)
	t.Cleanup(s.redis.Close)
	return s
}

func (s *server) dial() (rueidis.Client, error) {
	return rwlock.Dial("locktest:6379", rueidis.ClientOption{
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			c, err := s.redis.Dial()
			return conn{c, s}, err
		},
	})
}

// conn sets the server's clock before each request: once moved, it stands still.
type conn struct {
	net.Conn
	server *server
}

func (c conn) Write(b []byte) (int, error) {
	c.server.advance(0)
	return c.Conn.Write(b)
}

// advance moves the clock by d, and on to the present if it was moved before.
func (s *server) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead += d; s.ahead > 0 {
		s.redis.SetTime(time.Now().UTC().Add(s.ahead))
	}
}

// subscribers returns how many lockers receive messages: each has a channel of its own.
func (s *server) subscribers() int { return len(s.redis.PubSubChannels("*")) }

//go:build unix

package testredis

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/redis/rueidis"
)

// Deployment is a Redis in the form that its clients see: one server, a master behind sentinels, or a Cluster.
type Deployment interface {
	// Option returns what rwlock.Dial needs to find it, with an empty address.
	Option() rueidis.ClientOption
	// Command runs a command as an administrator, on the master that has its key. See Server.Command.
	Command(args ...string) (any, error)
	// Masters returns the servers that take writes now.
	Masters() []*Server
}

// NewLink returns a link for the clients of one process in a deployment. It carries each connection to the address that
// the client dials, so its faults apply to all nodes alike. If the option has a TLS configuration, the link speaks TLS
// to the servers and sees the plain text.
func NewLink(t testing.TB, option rueidis.ClientOption) *Link {
	t.Helper()
	config := option.TLSConfig
	l := newLink(func(ctx context.Context, addr string) (net.Conn, error) {
		if config != nil {
			return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
	l.option = option
	l.option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := l.connect(ctx, addr, d.Timeout)
		if err != nil {
			return nil, err
		}
		return FarEnd(conn, addr), nil
	}
	t.Cleanup(l.close)
	return l
}

// FarEnd returns the connection with that address at its other end.
func FarEnd(conn net.Conn, addr string) net.Conn { return &farEnd{conn, addr} }

type farEnd struct {
	net.Conn
	addr string
}

func (c *farEnd) RemoteAddr() net.Addr { return c }

// Network and String make it a net.Addr.
func (c *farEnd) Network() string { return "tcp" }
func (c *farEnd) String() string  { return c.addr }

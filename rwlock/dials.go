package rwlock

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/redis/rueidis"
)

// dials are the connections that a client has opened.
type dials struct {
	mu           sync.Mutex
	n            uint64
	newest, call string        // the far ends of the newest connection of all, and of one for calls
	next         chan struct{} // closed by the next connection
}

// Dials returns how many connections have been opened. An attempt that failed does not count: what was sent before goes
// to the same server as what is sent after it.
func (d *dials) Dials() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// LastDials returns the far ends of the newest connection and of the newest for calls, and what is closed when there is
// a newer one. The first connection of a client counts as another's than a call's.
func (d *dials) LastDials() (newest, call string, next <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.newest, d.call, d.next
}

func (d *dials) opened(ctx context.Context, conn net.Conn) {
	remote := ""
	if addr := conn.RemoteAddr(); addr != nil {
		remote = addr.String()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	d.newest = remote
	if ctx != context.Background() { // the client dials with its caller's context, and by itself with this one
		d.call = remote
	}
	close(d.next)
	d.next = make(chan struct{})
}

// counting counts the connections that a client opens.
func (d *dials) counting(o rueidis.ClientOption) rueidis.ClientOption {
	dial := o.DialCtxFn
	if dial == nil {
		old := o.DialFn
		dial = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			switch {
			case old != nil:
				return old(addr, d, c)
			case c != nil:
				return (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", addr)
			default:
				return d.DialContext(ctx, "tcp", addr)
			}
		}
	}
	o.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, c *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, addr, dialer, c)
		if err != nil {
			return nil, err
		}
		d.opened(ctx, conn)
		if o.DisableTCPNoDelay { // the system gathers, and the client looks for a connection of its own kind
			return conn, nil
		}
		return &gatheringConn{Conn: conn}, nil
	}
	return o
}

package rwlock

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/redis/rueidis"
)

// dials counts the connections that a client has opened.
type dials struct {
	mu           sync.Mutex // guards n, newest, call and next
	n            uint64
	newest, call string        // the remote addresses of the newest connection, and of the newest for calls
	next         chan struct{} // closed by the next connection
}

// Dials returns how many connections have been opened. A failed attempt does not count: requests before and after it go
// to the same server.
func (d *dials) Dials() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// LastDials returns the remote addresses of the newest connection and of the newest connection for calls, and a channel
// that is closed when a newer connection opens. With them a locker follows a client to another server. The first
// connection of a client does not count as a connection for calls.
func (d *dials) LastDials() (newest, call string, next <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.newest, d.call, d.next
}

// opened counts a connection before anything is sent over it. So a locker that reads the count after an answer sees
// every connection over which the answer may have come.
func (d *dials) opened(ctx context.Context, conn net.Conn) {
	remote := ""
	if addr := conn.RemoteAddr(); addr != nil {
		remote = addr.String()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	d.newest = remote
	if ctx != context.Background() { // the client dials for a call with the caller's context, else with Background
		d.call = remote
	}
	close(d.next)
	d.next = make(chan struct{})
}

// counting counts the connections that a client opens. It calls a dial function of the user as the client would.
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
		prompt := newPromptConn(conn)
		if o.DisableTCPNoDelay {
			gatherInSystem(conn)
			return prompt, nil
		}
		return &gatheringConn{Conn: prompt}, nil
	}
	return o
}

// gatherInSystem does what the client does for DisableTCPNoDelay if it knows the type of its connection.
func gatherInSystem(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(false)
	}
}

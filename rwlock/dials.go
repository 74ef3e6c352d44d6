package rwlock

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// dials are the connections that a client has opened.
type dials struct {
	mu           sync.Mutex // guards what follows
	n            uint64
	newest, call string        // the far ends of the newest connection of all, and of one for calls
	next         chan struct{} // closed by the next connection

	answerWithin atomic.Int64 // in nanoseconds; 0 where no locker has told
}

// Dials returns how many connections have been opened. An attempt that failed does not count: what was sent before goes
// to the same server as what is sent after it.
func (d *dials) Dials() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// LastDials, by which a locker follows a client to another server, returns the far ends of the newest connection and of
// the newest for calls, and what is closed when there is a newer one. The first connection of a client counts as
// another's than a call's.
func (d *dials) LastDials() (newest, call string, next <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.newest, d.call, d.next
}

// AnswerWithin has connections replaced over which nothing comes for that time after something was sent. The least time
// that a locker has told counts; at most it is that of a client without a locker.
func (d *dials) AnswerWithin(limit time.Duration) {
	for {
		before := d.answerWithin.Load()
		if before != 0 && before <= int64(limit) || d.answerWithin.CompareAndSwap(before, int64(limit)) {
			return
		}
	}
}

func (d *dials) silenceLimit() time.Duration {
	if limit := d.answerWithin.Load(); limit != 0 {
		return min(time.Duration(limit), silenceMost)
	}
	return silenceMost
}

// opened counts a connection, before anything is sent over it: a locker that reads the count after an answer then sees
// every connection by which the answer can have come.
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

// counting counts the connections that a client opens. A function of the user's that dials is called as the client
// would have called it.
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
		prompt := newPromptConn(conn, d.silenceLimit)
		if o.DisableTCPNoDelay {
			gatherInSystem(conn)
			return prompt, nil
		}
		return &gatheringConn{Conn: prompt}, nil
	}
	return o
}

// gatherInSystem does what the client does for this option where it knows the kind of its connection.
func gatherInSystem(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(false)
	}
}

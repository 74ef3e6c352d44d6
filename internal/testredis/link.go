package testredis

import (
	"context"
	"maps"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Link carries the connections of its clients to a server, and breaks them on request. Every method may be called at
// any time from any goroutine.
type Link struct {
	gate
	faults
	dial   func(ctx context.Context, addr string) (net.Conn, error) // opens a connection to the server
	option rueidis.ClientOption

	mu     sync.Mutex
	closed bool
	wires  map[*wire]struct{}
	wg     sync.WaitGroup
}

func newLink(dial func(ctx context.Context, addr string) (net.Conn, error)) *Link {
	return &Link{
		gate:   gate{changed: make(chan struct{}), delay: map[Direction]func() time.Duration{}},
		faults: faults{calls: map[string]int{}},
		dial:   dial,
		wires:  map[*wire]struct{}{},
	}
}

// Cut closes all connections at once, on both sides. Bytes in transit are lost. New connections are accepted.
func (l *Link) Cut() {
	l.mu.Lock()
	wires := maps.Clone(l.wires)
	l.mu.Unlock()
	for w := range wires {
		w.cut()
	}
}

// Conns returns the number of open connections.
func (l *Link) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.wires)
}

// Option returns the client options of a lock, with connections over this link.
func (l *Link) Option() rueidis.ClientOption { return l.option }

// Client returns a client over this link. It is closed when the test ends.
func (l *Link) Client(t testing.TB) rueidis.Client {
	t.Helper()
	return newClient(t, l.option)
}

// connect opens a connection over the link to the server at that address, as a dialler of clients; 0 is no timeout.
func (l *Link) connect(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	server, err := l.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	client, near := net.Pipe()
	if !l.carry(near, server) {
		return nil, errRefused()
	}
	return client, nil
}

// carry starts to pass bytes between the two connections, unless the link is closed.
func (l *Link) carry(client, server net.Conn) bool {
	w := newWire(l, client, server)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		w.cut()
		return false
	}
	l.wires[w] = struct{}{}
	l.wg.Go(func() {
		w.run()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.wires, w)
	})
	return true
}

// close cuts the link for good and waits for its goroutines.
func (l *Link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Refuse()
	l.Cut()
	l.wg.Wait()
}

func errRefused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

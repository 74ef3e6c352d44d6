package testredis

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Direction names the way that bytes travel.
type Direction int

// The directions of a link; Both is their union.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Link carries the connections of its clients to a server, and breaks them when told to.
// Every method may be called at any time from any goroutine.
type Link struct {
	dial   func(ctx context.Context, addr string) (net.Conn, error) // opens a connection to the server
	option rueidis.ClientOption
	arrive func() // called before each command reaches the server; may be nil

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced whenever a gate opens or closes
	closed    bool
	refused   bool
	frozen    bool      // the server reads nothing
	held      Direction // bytes wait
	blackhole Direction // bytes vanish
	delay     map[Direction]func() time.Duration
	rules     []*rule
	pushes    func(push []string) bool
	duplicate func(cmd []string) bool
	check     func(cmd []string, first, second string)
	onCommand func(cmd []string)
	calls     map[string]int
	wires     map[*wire]struct{}

	wg sync.WaitGroup
}

func newLink(dial func(ctx context.Context, addr string) (net.Conn, error)) *Link {
	return &Link{
		dial:    dial,
		changed: make(chan struct{}),
		delay:   map[Direction]func() time.Duration{},
		calls:   map[string]int{},
		wires:   map[*wire]struct{}{},
	}
}

// set changes the state of the link and wakes whoever waits for such a change.
func (l *Link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Blackhole makes all bytes of that direction vanish while connections stay open; dialling hangs.
// A connection that has lost bytes stays lost after Restore, as its stream has a hole; one that lost
// none goes on. Directions add up.
func (l *Link) Blackhole(dir Direction) { l.set(func() { l.blackhole |= dir }) }

// Hold makes all bytes of that direction wait until Restore and arrive then in their order; dialling
// hangs. Directions add up.
func (l *Link) Hold(dir Direction) { l.set(func() { l.held |= dir }) }

// Refuse makes new connections fail at once. Those that are open live on.
func (l *Link) Refuse() { l.set(func() { l.refused = true }) }

// Restore ends Blackhole, Hold and Refuse. Delays stay.
func (l *Link) Restore() {
	l.set(func() { l.blackhole, l.held, l.refused = 0, 0, false })
}

// Delay makes all bytes of both directions arrive d later; 0 ends it.
func (l *Link) Delay(d time.Duration) { l.DelayDir(Both, d) }

// DelayDir makes all bytes of that direction arrive d later; 0 ends it.
func (l *Link) DelayDir(dir Direction, d time.Duration) {
	l.DelayFunc(dir, func() time.Duration { return d })
}

// DelayFunc asks f for the delay of each message of that direction. Their order stays.
func (l *Link) DelayFunc(dir Direction, f func() time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range []Direction{ToServer, ToClient} {
		if dir&one != 0 {
			l.delay[one] = f
		}
	}
}

// Cut closes all connections at once, on both sides; what is under way is lost.
// New connections are accepted.
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

// Calls returns how many commands of that name have reached the server over this link.
// Commands that a script runs do not count.
func (l *Link) Calls(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[strings.ToUpper(name)]
}

// AllCalls returns how many commands have reached the server, by upper-case name.
func (l *Link) AllCalls() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.calls)
}

// ResetCalls sets all counts to zero.
func (l *Link) ResetCalls() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.calls)
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
	for {
		l.mu.Lock()
		refused, hangs, changed := l.refused || l.closed, l.held|l.blackhole != 0, l.changed
		l.mu.Unlock()
		if refused {
			return nil, errRefused()
		}
		if !hangs {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("testredis: dial: %w", ctx.Err())
		}
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

// pass waits until the direction is open. It reports whether the bytes arrive, or vanish.
func (l *Link) pass(dir Direction, gone <-chan struct{}) bool {
	for {
		l.mu.Lock()
		waits := l.held&dir != 0 || (l.frozen && dir == ToServer)
		arrives, changed := l.blackhole&dir == 0, l.changed
		l.mu.Unlock()
		if !waits {
			return arrives
		}
		select {
		case <-changed:
		case <-gone:
			return false
		}
	}
}

// latency returns the delay of the next message.
func (l *Link) latency(dir Direction) time.Duration {
	l.mu.Lock()
	f := l.delay[dir]
	l.mu.Unlock()
	if f == nil {
		return 0
	}
	return f()
}

// close cuts the link for good and waits for its goroutines.
func (l *Link) close() {
	l.set(func() { l.closed = true })
	l.Cut()
	l.wg.Wait()
}

func errRefused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

package testredis

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"sync/atomic"
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
func (l *Link) Cut() { l.CutIf(func() bool { return true }) }

// CutIf is Cut for each connection for which the function says so.
func (l *Link) CutIf(cuts func() bool) {
	l.mu.Lock()
	wires := maps.Clone(l.wires)
	l.mu.Unlock()
	for w := range wires {
		if cuts() {
			w.cut()
		}
	}
}

// Stray holds back what the open connections send to the server from now on, as a network does that has lost its way.
// What they have sent arrives when the strays are delivered, also after they were reset and replaced by others.
func (l *Link) Stray() Strays {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Strays{make([]*wire, 0, len(l.wires))}
	for w := range l.wires {
		if w.stray() {
			s.wires = append(s.wires, w)
		}
	}
	return s
}

// Strays are connections whose bytes are held back.
type Strays struct{ wires []*wire }

// Reset closes the connections on the side of their clients, which then open new ones.
func (s Strays) Reset() {
	for _, w := range s.wires {
		reset(w.toServer.src)
	}
}

// Deliver lets the bytes arrive. A connection that was reset ends after them.
func (s Strays) Deliver() {
	for _, w := range s.wires {
		w.deliverStrays()
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

func newWire(l *Link, client, server net.Conn) *wire {
	w := &wire{link: l, gone: make(chan struct{})}
	w.toServer = newPump(w, ToServer, client, server)
	w.toClient = newPump(w, ToClient, server, client)
	return w
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

// pump passes on the messages of one direction: read queues them at once, without limit, so that a sender never blocks
// on a broken link, and write delivers them when they are due.
type pump struct {
	wire     *wire
	dir      Direction
	src, dst net.Conn
	framer   framer
	lost     bool // used by write alone: the stream has a hole, nothing after it may arrive

	mu    sync.Mutex
	queue []item
	ready chan struct{} // holds one token while queue may have something
}

// item is a message in transit. Without data it is the end of the stream.
type item struct {
	data []byte
	raw  bool // not known to be RESP
	due  time.Time
	call *call // the call that it answers, if known
}

func newPump(w *wire, dir Direction, src, dst net.Conn) *pump {
	return &pump{wire: w, dir: dir, src: src, dst: dst, ready: make(chan struct{}, 1)}
}

// read queues everything that arrives from src until the stream ends.
func (p *pump) read(see func(frame []byte) (item, bool)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := p.src.Read(buf)
		for _, frame := range p.framer.feed(buf[:n]) {
			if it, ok := see(frame); ok {
				p.put(it)
			}
		}
		if err == nil {
			continue
		}
		if rest := p.framer.flush(); len(rest) > 0 {
			p.put(item{data: rest, raw: true})
		}
		p.put(item{})
		return
	}
}

func (p *pump) put(it item) {
	it.due = time.Now().Add(p.wire.link.latency(p.dir))
	if it.call != nil && it.call.rule != nil && it.call.rule.kind == delayReply {
		it.due = it.due.Add(it.call.rule.delay)
		it.call.rule.strike()
	}
	p.mu.Lock()
	p.queue = append(p.queue, it)
	p.mu.Unlock()
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// write delivers what is queued until the stream ends or the wire is cut.
func (p *pump) write(deliver func(item) bool) {
	for {
		it, ok := p.next()
		if !ok {
			return
		}
		if arrives := p.wire.link.pass(p.dir, it.call.isScript(), p.wire.gone); !arrives {
			p.lost = true
		}
		if p.dir == ToServer && !p.wire.awaitStrays() {
			p.lost = true
		}
		switch {
		case it.data == nil:
			if !p.lost {
				closeWrite(p.dst)
			}
			return
		case !p.lost && !deliver(it):
			p.lost = true
		}
	}
}

// next waits for the oldest item to be due.
func (p *pump) next() (item, bool) {
	for {
		p.mu.Lock()
		if len(p.queue) > 0 {
			it := p.queue[0]
			p.queue = p.queue[1:]
			p.mu.Unlock()
			return it, p.await(it.due)
		}
		p.mu.Unlock()
		select {
		case <-p.ready:
		case <-p.wire.gone:
			return item{}, false
		}
	}
}

// await waits until the given time, and reports whether the wire is still intact.
func (p *pump) await(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		select {
		case <-p.wire.gone:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.wire.gone:
		return false
	}
}

func (p *pump) send(data []byte) bool {
	_, err := p.dst.Write(data)
	return err == nil
}

// closeWrite signals the end of the stream to the far side, and leaves the other direction open where the connection
// can.
func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = conn.Close()
}

// ClientOption returns the options of a client for locks: one ordered, always pipelined connection
// without client-side cache, short dial and write times, small buffers.
func ClientOption(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:         []string{addr},
		ForceSingleClient:   true,
		DisableCache:        true,
		AlwaysPipelining:    true,
		PipelineMultiplex:   -1,
		Dialer:              net.Dialer{Timeout: time.Second, KeepAlive: time.Second},
		ConnWriteTimeout:    3 * time.Second,
		RingScaleEachConn:   8,
		ReadBufferEachConn:  16 << 10,
		WriteBufferEachConn: 16 << 10,
	}
}

func newClient(t testing.TB, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatalf("client of %s: %v", option.InitAddress[0], err)
	}
	t.Cleanup(client.Close)
	return client
}

// Direction is a direction of traffic.
type Direction int

// The directions of a link; Both is their union.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// gate passes or blocks the bytes and connections of a link.
type gate struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced whenever the gate opens or closes
	refused   bool
	frozen    bool      // the server reads nothing
	stalled   bool      // the server commits nothing: replies to scripts wait
	held      Direction // bytes wait
	blackhole Direction // bytes vanish
	delay     map[Direction]func() time.Duration
}

// set changes the state of the gate and wakes all waiters.
func (g *gate) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	close(g.changed)
	g.changed = make(chan struct{})
}

// Blackhole makes all bytes of that direction vanish while connections stay open. Dialling hangs. A connection that has
// lost bytes stays broken after Restore, because its stream has a hole. A connection that has lost none continues.
// Directions add up.
func (g *gate) Blackhole(dir Direction) { g.set(func() { g.blackhole |= dir }) }

// Hold makes all bytes of that direction wait until Restore and arrive then in order. Dialling hangs. Directions add
// up.
func (g *gate) Hold(dir Direction) { g.set(func() { g.held |= dir }) }

// Refuse makes new connections fail at once. Open connections stay open.
func (g *gate) Refuse() { g.set(func() { g.refused = true }) }

// Restore ends Blackhole, Hold and Refuse. Delays stay.
func (g *gate) Restore() {
	g.set(func() { g.blackhole, g.held, g.refused = 0, 0, false })
}

// Delay makes all bytes of both directions arrive d later; 0 ends it.
func (g *gate) Delay(d time.Duration) { g.DelayDir(Both, d) }

// DelayDir makes all bytes of that direction arrive d later; 0 ends it.
func (g *gate) DelayDir(dir Direction, d time.Duration) {
	g.DelayFunc(dir, func() time.Duration { return d })
}

// DelayFunc calls f for the delay of each message of that direction. The messages stay in order.
func (g *gate) DelayFunc(dir Direction, f func() time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range []Direction{ToServer, ToClient} {
		if dir&one != 0 {
			g.delay[one] = f
		}
	}
}

// enter waits until a connection may be opened.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		refused, hangs, changed := g.refused, g.held|g.blackhole != 0, g.changed
		g.mu.Unlock()
		switch {
		case refused:
			return errRefused()
		case !hangs:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("testredis: dial: %w", ctx.Err())
		}
	}
}

// refuses reports whether new connections fail at once.
func (g *gate) refuses() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// StallCommits makes the replies to scripts wait, and all that follows them on their connections, as those of a server
// whose durable log stands still. It executes commands all the same. Messages, and replies to other commands, pass.
func (g *gate) StallCommits() { g.set(func() { g.stalled = true }) }

// ResumeCommits ends StallCommits: the replies that wait arrive.
func (g *gate) ResumeCommits() { g.set(func() { g.stalled = false }) }

// pass waits until the direction is open, and for the log if the bytes are those of a write. It reports whether the
// bytes arrive. If not, they vanish.
func (g *gate) pass(dir Direction, write bool, gone <-chan struct{}) bool {
	for {
		g.mu.Lock()
		waits := g.held&dir != 0 || (g.frozen && dir == ToServer) || (g.stalled && write)
		arrives, changed := g.blackhole&dir == 0, g.changed
		g.mu.Unlock()
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
func (g *gate) latency(dir Direction) time.Duration {
	g.mu.Lock()
	f := g.delay[dir]
	g.mu.Unlock()
	if f == nil {
		return 0
	}
	return f()
}

// Proxy is a link with a listener on loopback, in front of a real server. It passes every byte on unchanged except for
// the faults that are active. Refused connections are reset after they were accepted, and dialling never hangs: the
// kernel does both, and the proxy cannot change it.
type Proxy struct {
	*Link
	listener net.Listener
	target   *atomic.Value // of a string; nil before a Mini
}

// NewProxy listens on a free port and carries connections to target. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	var leads atomic.Value
	leads.Store(target)
	p := newProxy(t, func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", leads.Load().(string))
	})
	p.target = &leads
	return p
}

func newProxy(t testing.TB, dial func(ctx context.Context, addr string) (net.Conn, error)) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{listener: listener, Link: newLink(dial)}
	p.Link.option = ClientOption(p.Addr())
	var wg sync.WaitGroup
	wg.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Link.close()
		wg.Wait()
	})
	return p
}

// Addr returns the host:port that clients use.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// LeadTo has new connections lead to another server. Those that stand stay where they are, as behind a service of
// Kubernetes.
func (p *Proxy) LeadTo(target string) { p.target.Store(target) }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.serve(client) {
			_ = client.(*net.TCPConn).SetLinger(0)
			_ = client.Close()
		}
	}
}

func (p *Proxy) serve(client net.Conn) bool {
	if p.refuses() {
		return false
	}
	server, err := p.dial(context.Background(), "")
	return err == nil && p.carry(client, server)
}

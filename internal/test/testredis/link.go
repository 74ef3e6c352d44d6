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
		RingScaleEachConn:   10,
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

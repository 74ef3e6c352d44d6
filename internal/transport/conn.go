package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

type dials struct {
	mu      sync.Mutex // guards all that follows
	n       uint64
	next    chan struct{} // closed by the next connection
	others  uint64        // of n, those that are not for messages
	asking  int           // calls of ForMessages under way
	awaited int           // connections that these may dial
	open    map[*replyTimeoutConn]struct{}
	left    int       // how often Leave has closed connections, one time soon after the other
	leaveAt time.Time // when it may close them again
}

// Dials returns how many connections have been opened. A failed attempt does not count: requests before and after it go
// to the same server.
func (d *dials) Dials() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// OtherDials returns how many connections have been opened that are not for messages. Lockers that share a client would
// else take each other's connections for the sign of another server, and replace their own without end.
func (d *dials) OtherDials() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.others
}

// ForMessages calls dedicate, which takes a connection for messages. If that one is dialled, OtherDials does not count
// it.
func (d *dials) ForMessages(dedicate func()) {
	d.mu.Lock()
	d.asking++
	d.awaited++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asking--
		d.awaited = min(d.awaited, d.asking) // the client had one
	}()
	dedicate()
}

// NextDial returns a channel that is closed when another connection opens. With it a locker follows a client to another
// server.
func (d *dials) NextDial() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next
}

// leaveForgotten is after how long without Leave its backoff begins anew.
const leaveForgotten = 10 * BackoffMax

// Leave closes all connections, so that the next calls and messages go to the server that the address leads to by then.
// It does so with a backoff: a replica that stays one is dialled once a second. Requests without an answer fail, and
// name the cause.
func (d *dials) Leave(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Before(d.leaveAt) {
		return
	}
	if now.Sub(d.leaveAt) > leaveForgotten {
		d.left = 0
	}
	d.leaveAt = now.Add(Backoff(d.left))
	d.left++
	for conn := range d.open {
		conn.leave(cause)
	}
}

func (d *dials) closed(conn *replyTimeoutConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, conn)
}

// opened counts a connection before anything is sent over it. So a locker that reads the count after an answer sees
// every connection over which the answer may have come.
//
// The client dials for a call with the context of its caller, and with Background for itself.
func (d *dials) opened(ctx context.Context, conn *replyTimeoutConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n++; d.awaited > 0 && ctx == context.Background() {
		d.awaited--
	} else {
		d.others++
	}
	d.open[conn] = struct{}{}
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
		prompt := newReplyTimeoutConn(conn, d.closed)
		if ctx.Value(dialsEnd{}) != nil {
			prompt.unwatch = context.AfterFunc(ctx, func() { prompt.leave(errUnanswered) })
		}
		d.opened(ctx, prompt)
		if o.DisableTCPNoDelay {
			enableNagle(conn)
			return prompt, nil
		}
		return &coalescingConn{Conn: prompt}, nil
	}
	return o
}

// dialsEnd marks the contexts of an engine's calls.
type dialsEnd struct{}

// EndingDials returns parent, but what the client dials for a call with it, or a child of it, ends with that call: the
// client itself waits for the first answer of a server without a look at the context. The context of a caller ends no
// dial, since other callers wait for the same one.
func EndingDials(parent context.Context) context.Context {
	return context.WithValue(parent, dialsEnd{}, true)
}

var errUnanswered = errors.New("the server had not answered when the call ended for which it was opened")

// enableNagle does what the client does for DisableTCPNoDelay if it knows the type of its connection.
func enableNagle(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(false)
	}
}

// replyTimeoutConn breaks when something was sent and nothing comes back for 2 s, or longer if answers are slow. The
// pending requests then fail, and the client dials again. So a connection that a proxy or a firewall dropped silently
// is noticed in time for a lease with a TTL of 5 s or more, with any interval and timeout of the client's own PINGs.
//
// A shorter time would save leases with a shorter TTL, but a server that pauses would then fail calls that it answers
// in time: a Release waits for 2 s by default.
//
// Any received data counts, not only the answer to a given request. An earlier answer that comes just after a request
// was sent hides the silence that follows, until the next Write: a PING a second later, at the latest.
type replyTimeoutConn struct {
	net.Conn
	timer   *time.Timer
	armed   atomic.Int64 // the interval of the timer, in nanoseconds; 0 if it does not run
	silence atomic.Int32 // 0 once something was received since the last Write; else 1, plus 1 for each tick since
	asked   atomic.Int64 // when the first Write of a silence began, in nanoseconds since opened
	slowest atomic.Int64 // the slowest recent answer, in nanoseconds
	opened  time.Time
	closed  func(*replyTimeoutConn) // called at its end

	abandoned atomic.Pointer[string] // why leave was called
	unwatch   func() bool            // stops watching the call that it is dialled for; nil if that does not end it

	// Only the goroutine that reads uses these.
	greeted  bool // something was received
	greeting greeting
}

const (
	minReplyTimeout = 2 * time.Second // the default release timeout
	maxReplyTimeout = 3 * time.Second // also for the first answer: how long answers take is not known before
	timeoutTicks    = 3               // one late tick, in a process that stood still, proves nothing alone
	slowFactor      = 3               // a silence lasts this many times the slowest recent answer
	slowestDecay    = 8               // each answer reduces slowest by one part in slowestDecay
)

func newReplyTimeoutConn(conn net.Conn, closed func(*replyTimeoutConn)) *replyTimeoutConn {
	c := &replyTimeoutConn{Conn: conn, opened: time.Now(), closed: closed}
	c.slowest.Store(int64(maxReplyTimeout / slowFactor))
	c.timer = time.AfterFunc(maxReplyTimeout, c.tick)
	c.timer.Stop()
	return c
}

func (c *replyTimeoutConn) Write(b []byte) (int, error) {
	if c.silence.Load() == 0 {
		c.asked.Store(int64(time.Since(c.opened)))
		c.silence.Store(1)
		c.arm()
	}
	return c.Conn.Write(b)
}

func (c *replyTimeoutConn) Read(b []byte) (int, error) {
	if !c.greeted && c.abandoned.Load() != nil { // the client has set a deadline of its own since
		c.breakOff()
	}
	n, err := c.Conn.Read(b)
	if n > 0 && c.silence.Load() != 0 {
		took, slowest := int64(time.Since(c.opened))-c.asked.Load(), int64(0)
		if c.greeted {
			slowest = c.slowest.Load()
			slowest -= slowest / slowestDecay
		} else if c.unwatch != nil {
			c.unwatch()
		}
		c.greeted = true
		c.slowest.Store(max(took, slowest))
		c.silence.Store(0)
	}
	if !c.greeting.done {
		err = c.greeting.check(c.Conn, b[:n], err)
	}
	if cause := c.abandoned.Load(); cause != nil && err != nil {
		err = errors.New(*cause)
	}
	return n, err
}

func (c *replyTimeoutConn) Close() error {
	c.timer.Stop()
	if c.unwatch != nil {
		c.unwatch()
	}
	c.closed(c)
	return c.Conn.Close()
}

// leave has the client close the connection. It does not block, as closing a connection of TLS may. What is kept of the
// cause is its text alone: another request may have been carried out.
func (c *replyTimeoutConn) leave(cause error) {
	text := "connection closed: " + cause.Error()
	if kindOf(cause) == readOnly {
		text += ": " + replicaAdvice
	}
	c.abandoned.Store(&text)
	c.breakOff()
}

// breakOff makes Read fail now, as after a timeout: then the client closes the connection.
func (c *replyTimeoutConn) breakOff() { _ = c.SetReadDeadline(time.Unix(1, 0)) }

// arm starts the timer if it does not run, or should run faster. The timer runs on while answers come, so that a Write
// and its answer seldom touch it.
func (c *replyTimeoutConn) arm() {
	before, interval := c.armed.Load(), c.interval()
	if (before == 0 || interval < before) && c.armed.CompareAndSwap(before, interval) {
		c.timer.Reset(time.Duration(interval))
	}
}

func (c *replyTimeoutConn) interval() int64 {
	return min(max(int64(minReplyTimeout), slowFactor*c.slowest.Load()), int64(maxReplyTimeout)) / timeoutTicks
}

// left returns the time until a silence has lasted for all ticks.
func (c *replyTimeoutConn) left() time.Duration {
	return time.Duration(c.asked.Load()+timeoutTicks*c.interval()) - time.Since(c.opened)
}

func (c *replyTimeoutConn) tick() {
	switch silence := c.silence.Load(); {
	case silence == 0:
		c.armed.Store(0)
		if c.silence.Load() != 0 { // a Write came before that Store and relied on this timer
			c.arm()
		}
	case silence < timeoutTicks:
		c.silence.CompareAndSwap(silence, silence+1)
		interval := c.interval()
		c.armed.Store(interval)
		c.timer.Reset(time.Duration(interval))
	case c.left() > 0: // the timer ran already when the silence began
		c.timer.Reset(c.left())
	default:
		c.breakOff()
	}
}

// greeting is the first text that a server sends on a connection. A server that accepts no more connections sends the
// reason without a request, and closes the connection. The client has sent its first commands by then. It takes the end
// of the connection for the answer to each of them, and would report only EOF.
type greeting struct {
	text []byte // kept while it may be a refusal
	done bool   // it was no refusal
}

// connectionRefusals has the beginnings of such refusals. The server sends nothing else before or after them.
var connectionRefusals = [][]byte{[]byte("-ERR max number of clients"), []byte("-DENIED ")}

// check takes the first text that was read, and the error that ended reading. It returns a refusal as a failure to
// connect, because no command that was sent has run.
func (g *greeting) check(conn net.Conn, read []byte, err error) error {
	g.text = append(g.text, read...)
	line, more, whole := bytes.Cut(g.text, []byte("\r\n"))
	begins := func(with []byte) bool { return bytes.HasPrefix(line, with) || bytes.HasPrefix(with, line) }
	switch refusal := slices.ContainsFunc(connectionRefusals, begins); {
	case len(g.text) == 0 && errors.Is(err, io.EOF):
		return &net.OpError{Op: "dial", Addr: conn.RemoteAddr(), Err: errNoGreeting}
	case !refusal || len(more) > 0:
		*g = greeting{done: true}
	case err != nil && whole:
		return &net.OpError{Op: "dial", Addr: conn.RemoteAddr(), Err: errors.New(string(line[1:]))}
	}
	return err
}

// errNoGreeting is the failure of a new connection that the other side closes without an answer. The client sends a
// user's command only after the answer to HELLO. A proxy that does not know that command closes the connection so, and
// a proxy without a server, and some servers that expect TLS.
var errNoGreeting = fmt.Errorf("closed without an answer to the first command (HELLO): %w", io.EOF)

// coalescingConn sends the commands of many callers in few writes. One goroutine of the client writes for all callers.
// It becomes runnable as soon as the first caller of a burst has posted a command, so without coalescingConn it would
// find one or two commands at a time, and a write costs the client more than anything else. After a write that closely
// followed another write, coalescingConn yields to the goroutines that are ready to run: they post their commands, and
// the next write carries all of them. If no goroutine is ready, it continues at once, so a single caller does not wait.
// A pause of a fixed length, such as rueidis' MaxFlushDelay, would delay a few callers too.
//
// If other goroutines keep the processors busy, the next write waits for one of their turns, as the goroutine that
// reads the replies does anyway.
type coalescingConn struct {
	net.Conn
	last time.Time // of the last write; used only by the goroutine that writes
}

// burstGap is the largest distance of two writes that count as a burst of many callers on one connection. The
// writes of a single caller are a round trip apart.
const burstGap = 200 * time.Microsecond

func (c *coalescingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	now := time.Now()
	if now.Sub(c.last) < burstGap {
		runtime.Gosched()
	}
	c.last = now
	return n, err
}

// Dial returns a client that is tuned for locks, for options that are. It is nil if the options need a server that
// answers; otherwise the client connects later, and err is why it has not now.
func Dial(option rueidis.ClientOption) (rueidis.Client, error) {
	dials := &dials{next: make(chan struct{}), open: make(map[*replyTimeoutConn]struct{})}
	client, err := rueidis.NewClient(dials.counting(option))
	if client == nil {
		return nil, err
	}
	return &tunedClient{Client: client, dials: dials, expires: option.ConnLifetime > 0}, err
}

type tunedClient struct {
	rueidis.Client
	*dials
	expires bool // connections do after ConnLifetime
	closed  atomic.Bool
}

// SendsAgain reports whether the client may send a command twice: rueidis does so if a connection with a lifetime ends
// before it has answered, although the command may have run.
func (c *tunedClient) SendsAgain() bool { return c.expires }

// Close ends the client. Lockers that use it cannot work any more, and their waiting acquisitions fail.
func (c *tunedClient) Close() {
	c.closed.Store(true)
	c.Client.Close()
}

// Leave is as that of dials where the address of one server stands for it. Clients of Sentinel and of a Cluster follow
// a failover themselves.
func (c *tunedClient) Leave(cause error) {
	if c.Mode() == rueidis.ClientModeStandalone {
		c.dials.Leave(cause)
	}
}

// Closed reports whether Close was called: the locker distinguishes this from a connection that the client gave up.
func (c *tunedClient) Closed() bool { return c.closed.Load() }
